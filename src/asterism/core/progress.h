#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "asterism/core/log.h"

namespace asterism {

/// How far a piece of work is, on a logger: one bar with rate and time left on a terminal, otherwise one plain line
/// every few seconds, nothing when the logger is quiet.
class Progress {
 public:
  struct Options {
    std::string label;          // "train"
    std::string unit;           // "steps"
    int64_t total = 0;          // 0 = unknown: no bar, no time left
    int64_t first = 0;          // units done before this process began; they do not count into the rate
    double bar_seconds = 0.1;   // between two drawings of the bar
    double line_seconds = 5.0;  // between two plain lines
  };
  /// Seconds from any fixed moment.
  using Clock = std::function<double()>;

  /// `log` must outlive the object. Without a clock the steady clock of the system.
  explicit Progress(Options options, Logger& log = process_log(), Clock clock = {});
  ~Progress();  // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` units of all are done, those of `first` included. `note` stands at the end ("loss 2.31").
  void update(int64_t done, std::string_view note = "");
  /// The last line, a plain one also on a terminal; the bar disappears. Further calls do nothing.
  void finish();

 private:
  std::string bar_line(double seconds) const;
  std::string plain_line(double seconds) const;
  double rate(double seconds) const;
  std::string time_left(double seconds) const;

  Options options_;
  Logger& log_;
  Clock clock_;
  double start_ = 0.0, last_shown_ = 0.0;
  int64_t done_ = 0;
  std::string note_;
  bool finished_ = false;
};

/// "0.4s", "45s", "8m24s", "2h05m", "3d04h".
std::string readable_duration(double seconds);

/// "3.14", "250", "12.3k", "4.56M": three significant digits.
std::string readable_rate(double per_second);

}  // namespace asterism
