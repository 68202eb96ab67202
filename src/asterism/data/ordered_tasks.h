#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace asterism::data {

/// Runs tasks on threads and hands out their results in the order in which the tasks came, whichever is ready first.
/// For use by one thread; the caller bounds the memory by how many tasks it leaves pending.
template <typename Result>
class OrderedTasks {
 public:
  /// `threads` 0: a task runs in `take`, in the calling thread.
  explicit OrderedTasks(int64_t threads) {
    for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  /// Tasks that have not begun are dropped, those that have are waited for.
  ~OrderedTasks() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  void submit(std::function<Result()> function) {
    std::packaged_task<Result()> task(std::move(function));
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  /// Tasks submitted whose results were not taken.
  size_t pending() const { return results_.size(); }

  /// The result of the oldest pending task, waited for. Throws what the task has thrown.
  Result take() {
    if (threads_.empty()) {
      std::packaged_task<Result()> task = std::move(waiting_.front());
      waiting_.pop_front();
      task();
    }
    std::future<Result> oldest = std::move(results_.front());
    results_.pop_front();
    return oldest.get();
  }

 private:
  void work() {
    for (;;) {
      std::packaged_task<Result()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
        if (ending_) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }

  std::deque<std::future<Result>> results_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Result()>> waiting_;  // guarded by the mutex
  bool ending_ = false;                               // too
  std::vector<std::thread> threads_;
};

}  // namespace asterism::data
