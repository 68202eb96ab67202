#include "asterism/dist/watch.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "asterism/core/error.h"
#include "asterism/core/log.h"

namespace asterism::dist {

namespace {

// Computing without a collective counts as progress for this many time-outs, then it is an endless loop.
constexpr int kBusyTimeouts = 10;
// Share of a processor from which a process is computing rather than waiting.
constexpr double kBusyShare = 0.2;

double processor_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string in_seconds(std::chrono::milliseconds time) {
  return text(static_cast<double>(time.count()) / 1000.0, " s");
}

}  // namespace

Watch::Watch(std::shared_ptr<Store> store, std::vector<Member> members, int rank, const WatchOptions& options)
    : store_(std::move(store)),
      roster_(store_, static_cast<int>(members.size())),
      members_(std::move(members)),
      rank_(rank),
      options_(options),
      tick_(std::min(options.tick, std::max(options.timeout / 16, std::chrono::milliseconds(10)))) {
  activity_.since = talked_ = Clock::now();
  talker_ = std::thread([this] { talk(); });
  guard_ = std::thread([this] { guard(); });
}

Watch::~Watch() {
  stop();
}

void Watch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (talker_.joinable()) talker_.join();
  if (guard_.joinable()) guard_.join();
}

void Watch::enter(const std::string& what, bool meeting) {
  const std::lock_guard lock(mutex_);
  activity_.progress += 1;
  activity_.waiting = true;
  activity_.meeting = meeting;
  activity_.what = what;
  activity_.since = Clock::now();
}

void Watch::leave() {
  const std::lock_guard lock(mutex_);
  activity_.progress += 1;
  activity_.waiting = false;
  activity_.since = Clock::now();
}

void Watch::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  activity_.progress += 1;
  activity_.what = what;
  activity_.since = Clock::now();
}

void Watch::show_progress() {
  const std::lock_guard lock(mutex_);
  activity_.progress += 1;
  activity_.since = Clock::now();
}

void Watch::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw PeerError(failure_->reason);
}

void Watch::fail(const std::string& reason) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (failure_ || report_ || stopping_) return;
    report_ = Failure{rank_, text(describe(members_[rank_]), ": ", reason)};
    changed_.notify_all();
    // The process may end next: the others are to know why before.
    changed_.wait_for(lock, options_.gone_after, [&] { return failure_ || stopping_; });
  } catch (const std::exception&) {
    // The others find out that this rank is gone.
  }
}

void Watch::explain(const std::exception& error) {
  const std::string symptom = user_message(error);
  std::unique_lock lock(mutex_);
  if (!activity_.suspicious) {
    activity_.suspicious = true;
    activity_.symptom = symptom;
    activity_.since = Clock::now();
  }
  changed_.notify_all();
  changed_.wait_for(lock, 3 * options_.gone_after, [&] { return failure_ || stopping_; });
  throw PeerError(failure_ ? failure_->reason : text("a connection to another rank broke: ", symptom));
}

std::shared_ptr<void> Watch::on_failure(std::function<void()> interrupt) {
  const std::lock_guard lock(mutex_);
  const int64_t number = next_interrupt_++;
  if (failure_) interrupt();
  interrupts_.emplace(number, std::move(interrupt));
  return std::shared_ptr<void>(this, [number](void* watch) {
    auto* self = static_cast<Watch*>(watch);
    const std::lock_guard lock_again(self->mutex_);
    self->interrupts_.erase(number);
  });
}

void Watch::talk() {
  processor_seconds_ = processor_seconds();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    tick();
    lock.lock();
    talked_ = Clock::now();
    changed_.wait_for(lock, tick_, [&] { return stopping_ || (report_ && !failure_); });
  }
  silent_ = true;
  changed_.notify_all();
}

void Watch::guard() {
  std::unique_lock lock(mutex_);
  while (!silent_) {
    const Clock::time_point now = Clock::now();
    if (failure_ && now - failed_at_ >= options_.exit_grace) end_process();
    if (!failure_ && now - talked_ >= options_.timeout) {
      lock.unlock();
      set_failure({0, text(options_.store_holder, " does not answer for ", in_seconds(options_.timeout),
                           "; the process is stopped, or its machine or the network is gone")});
      lock.lock();
    }
    changed_.wait_for(lock, tick_, [&] { return silent_; });
  }
}

void Watch::tick() {
  std::optional<Failure> report;
  Activity activity;
  {
    const std::lock_guard lock(mutex_);
    activity = activity_;
    if (failure_) return;
    report = report_;
  }
  try {
    if (report) return set_failure(roster_.report(*report));
    publish(activity);
    if (const auto found = roster_.failure()) return set_failure(*found);
    judge(activity, Clock::now());
  } catch (const StoreLost& error) {
    set_failure(report ? *report : Failure{0, text(options_.store_holder, " is gone: ", error.what())});
  }
}

void Watch::publish(const Activity& activity) {
  const double now = processor_seconds(), used = now - processor_seconds_;
  processor_seconds_ = now;
  const double share = used / std::chrono::duration<double>(tick_).count();
  if (!activity.waiting && share >= kBusyShare && Clock::now() - activity.since < kBusyTimeouts * options_.timeout) {
    busy_ticks_ += 1;
  }
  beat_ += 1;
  store_->set(text("state/", rank_),
              text(beat_, " ", activity.progress + busy_ticks_, " ", activity.waiting, " ", activity.what));
}

void Watch::look(Clock::time_point now) {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(text("state/", member.rank));
  const std::vector<std::string> states = store_->get_all(names);
  const bool first = sights_.empty();
  sights_.resize(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    Sight sight = sights_[i];
    std::istringstream state(states[i]);
    state >> sight.beat >> sight.progress >> sight.waiting;
    state.get();
    std::getline(state, sight.what);
    if (first || sight.beat != sights_[i].beat) sight.alive = now;
    if (first || sight.progress != sights_[i].progress) sight.active = now;
    sights_[i] = sight;
  }
}

void Watch::judge(const Activity& activity, Clock::time_point now) {
  const bool late = activity.waiting && now - activity.since >= options_.timeout / 2;
  const bool meeting = activity.waiting && activity.meeting;
  if (!late && !meeting && !activity.suspicious) return sights_.clear();
  look(now);
  std::optional<Failure> found;
  if (activity.suspicious) {
    found = broken_connection(activity, now);
  } else {
    if (meeting) found = gone(2 * options_.gone_after, "it gives no sign of life", now);
    if (!found && now - activity.since >= options_.timeout) found = silence(now);
  }
  if (found) set_failure(roster_.report(*found));
}

std::optional<Failure> Watch::gone(std::chrono::milliseconds silent_for, const char* symptom,
                                   Clock::time_point now) const {
  for (const Member& member : members_) {
    if (member.rank == rank_ || now - sights_[member.rank].alive < silent_for) continue;
    return Failure{member.rank, text(describe(member), " is gone: ", symptom)};
  }
  return std::nullopt;
}

std::optional<Failure> Watch::broken_connection(const Activity& activity, Clock::time_point now) const {
  const auto found = gone(options_.gone_after, "its connections broke and it gives no sign of life", now);
  if (found) return found;
  if (now - activity.since < options_.gone_after + 2 * tick_) return std::nullopt;
  return Failure{rank_, text(describe(members_[rank_]),
                             " lost its connection to another rank although all are alive: ", activity.symptom)};
}

std::optional<Failure> Watch::silence(Clock::time_point now) const {
  const auto half = options_.timeout / 2;
  std::vector<int> silent, absent;
  for (const Member& member : members_) {
    const Sight& sight = sights_[member.rank];
    if (member.rank == rank_) continue;
    if (now - sight.alive >= half) {
      silent.push_back(member.rank);
    } else if (now - sight.active < half) {
      return std::nullopt;  // slow, and it goes on
    } else if (!sight.waiting) {
      absent.push_back(member.rank);
    }
  }
  const std::string waited = in_seconds(options_.timeout);
  if (!silent.empty()) {
    return Failure{silent[0], text(describe(members_[silent[0]]), ": no sign of life for ", waited,
                                   silent.size() > 1 ? text(" (", describe_ranks(silent), " alike)") : "",
                                   "; the process is stopped, or its machine or the network is gone")};
  }
  if (!absent.empty()) {
    const std::string& last = sights_[absent[0]].what;
    return Failure{absent[0], text(describe(members_[absent[0]]), ": has not come to a collective for ", waited,
                                   absent.size() > 1 ? text(" (", describe_ranks(absent), " alike)") : "",
                                   last.empty() ? "" : text("; the last one that it began was ", last))};
  }
  return Failure{rank_, text("the ranks wait for each other, for ", waited, ": ", describe_waits(),
                             "; all must make the same calls in the same order")};
}

std::string Watch::describe_waits() const {
  std::map<std::string, std::vector<int>> ranks_by_what;
  for (const Member& member : members_) ranks_by_what[sights_[member.rank].what].push_back(member.rank);
  std::string result;
  for (const auto& [what, ranks] : ranks_by_what) {
    result += text(result.empty() ? "" : ", ", describe_ranks(ranks), " in ", what);
  }
  return result;
}

void Watch::set_failure(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_at_ = Clock::now();
    for (const auto& [number, interrupt] : interrupts_) interrupt();
  }
  changed_.notify_all();
}

void Watch::end_process() {
  process_log().error(text(failure_->reason, " (rank ", rank_, " did not end by itself within ",
                           in_seconds(options_.exit_grace), " and was ended)"));
  std::_Exit(1);
}

}  // namespace asterism::dist
