#pragma once

namespace asterism::cli {

/// What the signals of this process ask of a training run, while this lives: SIGUSR1 to save now and go on, and, once
/// there is something to save, SIGINT and SIGTERM to finish the step, save and end; a second one ends the process at
/// once. The handlers before it come back at the end. One at a time.
class RunSignals {
 public:
  RunSignals();
  ~RunSignals();
  RunSignals(const RunSignals&) = delete;
  RunSignals& operator=(const RunSignals&) = delete;

  /// From now on SIGINT and SIGTERM are requests.
  void catch_stops();
  bool stop_requested() const;
  /// True once for the requests so far.
  bool take_save_request() const;

 private:
  using Handler = void (*)(int);
  Handler previous_interrupt_ = nullptr, previous_terminate_ = nullptr, previous_user_ = nullptr;
  bool catches_stops_ = false;
};

}  // namespace asterism::cli
