#include "asterism/dist/world.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "asterism/core/error.h"
#include "asterism/dist/address.h"

namespace asterism::dist {

namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// The process that holds the store stays so long after a failure, for the others to read the reason.
constexpr std::chrono::milliseconds kLinger{2000}, kLingerPause{20};

constexpr std::chrono::hours kUnlimited{24 * 365};

std::vector<std::string> lines_of(const std::string& value) {
  std::vector<std::string> lines;
  std::istringstream stream(value);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Of a recipe only the first line that differs, or the message would be twice the recipe.
std::string difference(const std::string& label, const std::string& value, const std::string& there) {
  const std::vector<std::string> mine = lines_of(value), others = lines_of(there);
  const auto at = static_cast<size_t>(std::ranges::mismatch(mine, others).in1 - mine.begin());
  const auto line = [&](const std::vector<std::string>& lines) {
    if (at >= lines.size()) return std::string("nothing");
    return "'" + lines[at].substr(std::min(lines[at].find_first_not_of(' '), lines[at].size())) + "'";
  };
  const std::string place = mine.size() > 1 || others.size() > 1 ? text(", line ", at + 1, ",") : std::string();
  return text(label, place, " is ", line(mine), ", on rank 0 ", line(others));
}

std::string differences(const Facts& reference, const Facts& facts) {
  std::string result;
  for (const auto& [label, value] : facts) {
    const auto expected = std::ranges::find(reference, label, &Facts::value_type::first);
    if (expected != reference.end() && expected->second == value) continue;
    result += result.empty() ? "" : ", ";
    result += expected == reference.end() ? text(label, " is '", value, "', on rank 0 nothing")
                                          : difference(label, value, expected->second);
  }
  return result;
}

}  // namespace

World::World(Place place, WorldOptions options) : place_(std::move(place)), options_(std::move(options)) {
  if (place_.size == 1) {
    members_ = {{0, machine_name(), ::getpid(), ""}};
    return;
  }
  try {
    meet_others();
  } catch (const PeerError&) {
    linger();
    throw;
  } catch (const std::exception& error) {
    if (roster_) {
      const Member me = {place_.rank, machine_name(), ::getpid(), ""};
      try {
        roster_->report({place_.rank, text(describe(me), ": ", user_message(error))});
      } catch (const PeerError&) {
        // Nobody to tell it to.
      }
      linger();
    }
    throw;
  }
}

World::~World() {
  if (!left_) linger();  // guarded by the watch: the store may not answer
  if (watch_) watch_->stop();
}

void World::meet_others() {
  const bool serves = place_.rank == 0 && !place_.store_is_hosted;
  const bool local = place_.host == "127.0.0.1" || place_.host == "localhost";
  store_ = serves ? Store::serve(place_.port, local, place_.run)
                  : Store::connect(place_.host, place_.port, place_.run, options_.rendezvous_timeout);
  roster_ = std::make_unique<Roster>(store_, place_.size);
  const Member me = {place_.rank, machine_name(), ::getpid(), local ? "127.0.0.1" : address_towards(place_.host)};
  members_ = roster_->join(me, options_.rendezvous_timeout);
  std::vector<int> neighbours;
  for (const Member& member : members_) {
    if (member.host == me.host) neighbours.push_back(member.rank);
  }
  local_size_ = static_cast<int>(neighbours.size());
  local_rank_ =
      place_.local_rank.value_or(static_cast<int>(std::ranges::find(neighbours, place_.rank) - neighbours.begin()));
  options_.watch.store_holder = place_.store_is_hosted ? "the launcher" : describe(members_[0]);
  watch_ = std::make_shared<Watch>(store_->another_connection(), members_, place_.rank, options_.watch);
}

void World::compare(const Facts& facts) {
  if (size() == 1) return;
  const std::string round = text("facts/", comparisons_++);
  if (rank() == 0) store_->set(round + "/of-0", nlohmann::json(facts).dump());
  meet(round + "/known", all_ranks());
  const Facts reference = nlohmann::json::parse(*store_->find(round + "/of-0")).get<Facts>();
  const std::string mine = differences(reference, facts);
  if (!mine.empty()) {
    store_->set(text(round, "/differs/", rank()), mine);
    store_->add(round + "/differing", 1);
  }
  meet(round + "/compared", all_ranks());
  if (store_->add(round + "/differing", 0) == 0) return;
  std::string report;
  for (const Member& member : members_) {
    const auto found = store_->find(text(round, "/differs/", member.rank));
    if (found) report += text("; on ", describe(member), " ", *found);
  }
  // Nobody goes on before all have read it: rank 0 may hold the store.
  try {
    meet(round + "/read", all_ranks());
  } catch (const PeerError&) {
    // A rank that was faster has ended with the error below already: it is this rank's, too.
  }
  input_error("the ranks were not started with the same things", report,
              ". All need the same program, recipe and files");
}

void World::meet(const std::string& name, const std::vector<int>& ranks) {
  // Without an end of its own: who keeps the others waiting is found by the watch, as in a collective.
  watch_->enter(name, /*meeting=*/true);
  roster_->meet(name, rank(), ranks, kUnlimited);
  watch_->leave();
}

std::vector<int> World::all_ranks() const {
  std::vector<int> ranks;
  for (const Member& member : members_) ranks.push_back(member.rank);
  return ranks;
}

void World::run(const std::function<void()>& work) {
  try {
    work();
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception& error) {
    abort(user_message(error));
    throw;
  } catch (...) {
    abort("an error of unknown kind");
    throw;
  }
}

void World::abort(const std::string& reason) noexcept {
  if (watch_) watch_->fail(reason);
}

void World::show_progress() {
  if (watch_) watch_->show_progress();
}

void World::leave() {
  if (left_ || size() == 1) return;
  meet("the end of the run", all_ranks());
  // The one that holds the store goes last.
  left_ = true;
  watch_->stop();
  store_->add("left", 1);
  if (place_.rank != 0 || place_.store_is_hosted) return;
  const auto deadline = std::chrono::steady_clock::now() + options_.watch.timeout;
  while (store_->add("left", 0) < size() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void World::linger() {
  if (!roster_) return;
  try {
    const auto present = static_cast<int64_t>(roster_->present().size());
    store_->add("left", 1);
    if (place_.rank != 0 || place_.store_is_hosted) return;
    const auto deadline = std::chrono::steady_clock::now() + kLinger;
    while (store_->add("left", 0) < present && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kLingerPause);
    }
  } catch (const std::exception&) {
    // The store is gone already: nobody reads it any more.
  }
}

}  // namespace asterism::dist
