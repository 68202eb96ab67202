#include "asterism/core/background_task.h"

#include <chrono>
#include <exception>

#include "asterism/core/error.h"
#include "asterism/core/log.h"

namespace asterism {

BackgroundTask::~BackgroundTask() {
  try {
    wait();
  } catch (const std::exception& failure) {
    process_log().error(user_message(failure));
  }
}

void BackgroundTask::start(std::function<void()> work) {
  wait();
  running_ = std::async(std::launch::async, std::move(work));
}

void BackgroundTask::check() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) running_.get();
}

void BackgroundTask::wait() {
  if (running_.valid()) running_.get();
}

}  // namespace asterism
