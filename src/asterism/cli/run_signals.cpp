#include "asterism/cli/run_signals.h"

#include <csignal>
#include <cstdlib>

namespace asterism::cli {

namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t save_signal = 0;

void on_stop(int signal) {
  // At once, also while a checkpoint is written: the one before it is complete whatever happens.
  if (stop_signal != 0) std::_Exit(128 + signal);
  stop_signal = signal;
}

void on_save(int) {
  save_signal = 1;
}

}  // namespace

RunSignals::RunSignals() {
  stop_signal = 0;
  save_signal = 0;
  previous_user_ = std::signal(SIGUSR1, on_save);
}

RunSignals::~RunSignals() {
  std::signal(SIGUSR1, previous_user_);
  if (!catches_stops_) return;
  std::signal(SIGINT, previous_interrupt_);
  std::signal(SIGTERM, previous_terminate_);
}

void RunSignals::catch_stops() {
  catches_stops_ = true;
  previous_interrupt_ = std::signal(SIGINT, on_stop);
  previous_terminate_ = std::signal(SIGTERM, on_stop);
}

bool RunSignals::stop_requested() const {
  return stop_signal != 0;
}

bool RunSignals::take_save_request() const {
  if (save_signal == 0) return false;
  save_signal = 0;
  return true;
}

}  // namespace asterism::cli
