#include "asterism/core/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace asterism {

namespace {

constexpr int kBarCells = 24;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

}  // namespace

std::string readable_duration(double seconds) {
  if (!(seconds >= 0.0) || seconds > 1e9) return "?";
  if (seconds < 9.95) return formatted("%.1fs", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return formatted("%llds", whole);
  if (whole < 3600) return formatted("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86400) return formatted("%lldh%02lldm", whole / 3600, whole % 3600 / 60);
  return formatted("%lldd%02lldh", whole / 86400, whole % 86400 / 3600);
}

std::string readable_rate(double per_second) {
  double value = per_second;
  const char* suffix = "";
  for (const char* larger : {"k", "M", "G", "T"}) {
    // 999.5 would be printed as 1000.
    if (std::fabs(value) < 999.5) break;
    value /= 1000.0;
    suffix = larger;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return formatted("%.*f%s", digits, value, suffix);
}

Progress::Progress(Options options, Logger& log, Clock clock)
    : options_(std::move(options)), log_(log), clock_(clock ? std::move(clock) : Clock(steady_seconds)) {
  done_ = options_.first;
  start_ = clock_();
  // The first plain line comes after a full interval, the first bar at once.
  last_shown_ = log_.terminal() ? start_ - options_.bar_seconds : start_;
}

Progress::~Progress() {
  if (!finished_) log_.set_status("");
}

void Progress::update(int64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  if (finished_ || log_.quiet()) return;
  const double now = clock_();
  if (now - last_shown_ < (log_.terminal() ? options_.bar_seconds : options_.line_seconds)) return;
  last_shown_ = now;
  if (log_.terminal()) {
    log_.set_status(bar_line(now - start_));
  } else {
    log_.info(plain_line(now - start_));
  }
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (log_.quiet()) return;
  const double seconds = clock_() - start_;
  log_.set_status("");
  options_.total = 0;  // the work is over, whether or not it came to the end: no time left to tell
  log_.info(text(plain_line(seconds), ", took ", readable_duration(seconds)));
}

double Progress::rate(double seconds) const {
  return seconds > 0.0 ? static_cast<double>(done_ - options_.first) / seconds : 0.0;
}

std::string Progress::time_left(double seconds) const {
  const double per_second = rate(seconds);
  if (per_second <= 0.0) return "?";
  return readable_duration(static_cast<double>(std::max<int64_t>(options_.total - done_, 0)) / per_second);
}

std::string Progress::bar_line(double seconds) const {
  std::string line = options_.label + " ";
  if (options_.total > 0) {
    const double share = std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0);
    const int filled = static_cast<int>(share * kBarCells);
    line += formatted("%3d%% [", static_cast<int>(share * 100.0));
    line += std::string(filled, '#') + std::string(kBarCells - filled, '-') + "] ";
  }
  line += std::to_string(done_);
  if (options_.total > 0) line += "/" + std::to_string(options_.total);
  line += text(" ", options_.unit, "  ", readable_rate(rate(seconds)), " ", options_.unit, "/s");
  if (options_.total > 0) line += text("  ", time_left(seconds), " left");
  if (!note_.empty()) line += "  " + note_;
  return line;
}

std::string Progress::plain_line(double seconds) const {
  std::string line = text(options_.label, ": ", done_);
  if (options_.total > 0) {
    const int64_t percent = std::min<int64_t>(100 * done_ / options_.total, 100);
    line += text("/", options_.total, " ", options_.unit, " (", percent, "%)");
  } else {
    line += " " + options_.unit;
  }
  line += text(", ", readable_rate(rate(seconds)), " ", options_.unit, "/s");
  if (options_.total > 0) line += text(", ", time_left(seconds), " left");
  if (!note_.empty()) line += ", " + note_;
  return line;
}

}  // namespace asterism
