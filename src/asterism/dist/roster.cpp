#include "asterism/dist/roster.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "asterism/core/error.h"

namespace asterism::dist {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *kFailureName = "failure", *kMember = "member";
constexpr std::chrono::milliseconds kShortestPause{5}, kLongestPause{200};

std::vector<std::string> names_of(const std::vector<int>& ranks, const std::string& prefix) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(text(prefix, "/", rank));
  return names;
}

nlohmann::json to_json(const Member& member) {
  return {{"rank", member.rank}, {"host", member.host}, {"process", member.process}, {"address", member.address}};
}

Member member_from(const std::string& entry) {
  const auto json = nlohmann::json::parse(entry);
  return {json.at("rank"), json.at("host"), json.at("process"), json.at("address")};
}

Failure failure_from(const std::string& entry) {
  const auto json = nlohmann::json::parse(entry);
  return {json.at("rank"), json.at("reason")};
}

// A reason may hold bytes of anything.
std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string seconds(std::chrono::milliseconds time) {
  return text(static_cast<double>(time.count()) / 1000.0, " s");
}

}  // namespace

std::string describe(const Member& member) {
  return text("rank ", member.rank, " (", member.host, ", process ", member.process, ")");
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last > first + 1) {
      parts.push_back(text(ranks[first], " to ", ranks[last]));
      first = last + 1;
    } else {
      parts.push_back(text(ranks[first++]));
    }
  }
  std::string result = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += i + 1 == parts.size() ? " and " : ", ";
    result += parts[i];
  }
  return result;
}

std::vector<Member> Roster::join(const Member& member, std::chrono::milliseconds timeout) {
  store_->set(text("state/", member.rank), "");  // the watches of all may look at it from now on
  const std::string mine = dump(to_json(member));
  const std::string there = store_->set_first(text(kMember, "/", member.rank), mine);
  if (there != mine) {
    input_error("two processes are rank ", member.rank, ": ", describe(member_from(there)), " and ", describe(member),
                "; each needs a RANK of its own, and each run a MASTER_PORT of its own");
  }
  const nlohmann::json size = {{"size", size_}, {"rank", member.rank}};
  const auto agreed = nlohmann::json::parse(store_->set_first("size", dump(size)));
  if (agreed.at("size") != size_) {
    input_error("rank ", member.rank, " was started for ", size_, " ranks, rank ", agreed.at("rank").get<int>(),
                " for ", agreed.at("size").get<int>(), ": WORLD_SIZE must be the same for all");
  }
  wait_for(all(), kMember, timeout);
  return present();
}

void Roster::meet(const std::string& name, int rank, const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  store_->set(text(name, "/", rank), "here");
  wait_for(ranks, name, timeout);
}

std::vector<int> Roster::all() const {
  std::vector<int> ranks(size_);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void Roster::wait_for(const std::vector<int>& ranks, const std::string& name, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::vector<std::string> names = names_of(ranks, name);
  auto pause = kShortestPause;
  while (!store_->has_all(names)) {
    check();
    if (Clock::now() >= deadline) {
      std::vector<int> missing;
      for (const int rank : ranks) {
        if (!store_->has_all({text(name, "/", rank)})) missing.push_back(rank);
      }
      if (missing.empty()) return;
      std::string here;
      for (const Member& member : present()) {
        const bool is_missing = std::ranges::find(missing, member.rank) != missing.end();
        if (!is_missing) here += (here.empty() ? "" : ", ") + describe(member);
      }
      run_error(ranks.size() - missing.size(), " of ", ranks.size(), " ranks are here", name == kMember ? "" : " at ",
                name == kMember ? "" : name, " after ", seconds(timeout), "; missing: ", describe_ranks(missing),
                "; here: ", here, ". Start the missing ones, or correct the number of ranks (WORLD_SIZE)");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(kLongestPause, pause * 2);
  }
}

std::vector<Member> Roster::present() {
  std::vector<std::string> names = names_of(all(), kMember);
  if (!store_->has_all(names)) std::erase_if(names, [&](const std::string& name) { return !store_->has_all({name}); });
  std::vector<Member> members;
  if (names.empty()) return members;
  for (const std::string& entry : store_->get_all(names)) members.push_back(member_from(entry));
  return members;
}

std::optional<Failure> Roster::failure() {
  const auto entry = store_->find(kFailureName);
  if (!entry) return std::nullopt;
  return failure_from(*entry);
}

Failure Roster::report(const Failure& failure) {
  return failure_from(store_->set_first(kFailureName, dump({{"rank", failure.rank}, {"reason", failure.reason}})));
}

void Roster::check() {
  if (const auto found = failure()) throw PeerError(found->reason);
}

}  // namespace asterism::dist
