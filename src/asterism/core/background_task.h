#pragma once

#include <functional>
#include <future>

namespace asterism {

/// Work on a thread of its own, one piece at a time. What a piece throws reaches the owner once, as the same exception,
/// by the next call of any function here.
class BackgroundTask {
 public:
  BackgroundTask() = default;
  /// Waits; a failure that nobody has asked for becomes an error in the log.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Waits for the piece before, then starts this one.
  void start(std::function<void()> work);
  /// Throws what a piece that has ended threw; does not wait for one that is running.
  void check();
  /// Waits for the running piece.
  void wait();

 private:
  std::future<void> running_;
};

}  // namespace asterism
