#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "asterism/dist/roster.h"

namespace asterism::dist {

struct WatchOptions {
  /// How long a rank waits in a collective while no other rank shows progress.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// How long a rank may take to end by itself after the run has failed; then the process is ended (exit code 1).
  std::chrono::milliseconds exit_grace = std::chrono::seconds(4);
  std::chrono::milliseconds tick = std::chrono::milliseconds(250);
  /// A rank without a sign of life for this long is gone when a connection has broken.
  std::chrono::milliseconds gone_after = std::chrono::milliseconds(2500);
  /// Whose end the loss of the store means: "rank 0 (node1, process 17)", "the launcher".
  std::string store_holder = "rank 0";
};

/// Threads beside the work of a rank that keep a run of many processes from hanging: they give signs of life through
/// the store, say what the rank is doing, learn of the failure of others, wake the rank where it waits, find out who
/// does not answer (the store included), and end the process when the rank does not end by itself. Thread-safe.
class Watch {
 public:
  /// `store`: a connection of its own. `members`: of all ranks, in their order.
  Watch(std::shared_ptr<Store> store, std::vector<Member> members, int rank, const WatchOptions& options);
  ~Watch();  // stops it
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The rank waits in (or has left) the collective `what`; begins one; does something that takes long. In a `meeting`
  /// at the store no connection between ranks could break: who gives no sign of life is gone after a short time.
  void enter(const std::string& what, bool meeting = false);
  void leave();
  void begin(const std::string& what);
  void show_progress();

  /// Throws a PeerError with the reason once the run has failed.
  void check();

  /// Reports that this rank has failed for `reason`, and returns. The first report of all ranks stands.
  void fail(const std::string& reason) noexcept;

  /// A connection of this rank has broken: finds out why and throws a PeerError.
  [[noreturn]] void explain(const std::exception& error);

  /// Calls `interrupt` when the run has failed, on the thread of the watch; it must return at once. Until the returned
  /// object is destroyed.
  std::shared_ptr<void> on_failure(std::function<void()> interrupt);

  /// No failure is looked for any more: the rank has ended its work.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  /// What this rank is doing.
  struct Activity {
    int64_t progress = 0;
    bool waiting = false, meeting = false;
    bool suspicious = false;  // a connection has broken
    std::string what;         // the collective that it waits in or began last
    Clock::time_point since;  // it does that
    std::string symptom;      // of the broken connection
  };
  /// What is known of another rank, and since when it is unchanged.
  struct Sight {
    int64_t beat = -1, progress = -1;
    bool waiting = false;
    std::string what;
    Clock::time_point alive, active;
  };

  void talk();
  void tick();
  void guard();
  void publish(const Activity& activity);
  void look(Clock::time_point now);
  void judge(const Activity& activity, Clock::time_point now);
  std::optional<Failure> gone(std::chrono::milliseconds silent_for, const char* symptom, Clock::time_point now) const;
  std::optional<Failure> broken_connection(const Activity& activity, Clock::time_point now) const;
  std::optional<Failure> silence(Clock::time_point now) const;
  std::string describe_waits() const;
  void set_failure(const Failure& failure);
  void end_process();

  std::shared_ptr<Store> store_;
  Roster roster_;
  const std::vector<Member> members_;
  const int rank_;
  const WatchOptions options_;
  const std::chrono::milliseconds tick_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Activity activity_;
  std::optional<Failure> failure_, report_;  // that stands; of this rank, not yet in the store
  Clock::time_point failed_at_;
  std::map<int64_t, std::function<void()>> interrupts_;
  int64_t next_interrupt_ = 0;
  Clock::time_point talked_;  // when the store answered last
  bool stopping_ = false, silent_ = false;

  // Of the talking thread alone.
  int64_t beat_ = 0;
  std::vector<Sight> sights_;  // empty while nobody is suspected
  double processor_seconds_ = 0.0;
  int64_t busy_ticks_ = 0;

  std::thread talker_;
  std::thread guard_;  // stays able to act when a call to the store does not return
};

}  // namespace asterism::dist
