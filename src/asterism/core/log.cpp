#include "asterism/core/log.h"

#include <unistd.h>

#include <iostream>

namespace asterism {

namespace {

// Back to the first column, then erase to the end of the line.
constexpr std::string_view kEraseLine = "\r\033[K";
// Text beyond the right border is cut off: a status line that wraps could not be erased.
constexpr std::string_view kWrapOff = "\033[?7l", kWrapOn = "\033[?7h";

}  // namespace

void Logger::info(std::string_view line) {
  const std::lock_guard lock(mutex_);
  write(line, !quiet_);
}

void Logger::warning(std::string_view line) {
  const std::lock_guard lock(mutex_);
  write(text("warning: ", line), true);
}

void Logger::error(std::string_view line) {
  const std::lock_guard lock(mutex_);
  write(text("error: ", line), true);
}

void Logger::set_status(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!terminal_ || quiet_ || line == status_) return;
  erase_status();
  status_ = line;
  show_status();
}

void Logger::set_quiet(bool quiet) {
  const std::lock_guard lock(mutex_);
  erase_status();
  status_.clear();
  quiet_ = quiet;
}

bool Logger::quiet() const {
  const std::lock_guard lock(mutex_);
  return quiet_;
}

void Logger::open_file(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  file_.close();
  file_.clear();
  file_.open(path, std::ios::app | std::ios::binary);
  if (!file_) run_error(path.string(), ": cannot open the log file for writing");
  file_path_ = path;
  write_to_file(held_);
  holding_ = false;
  held_.clear();
}

void Logger::hold_lines() {
  const std::lock_guard lock(mutex_);
  file_.close();
  holding_ = true;
  held_.clear();
}

void Logger::close_file() {
  const std::lock_guard lock(mutex_);
  file_.close();
  holding_ = false;
  held_.clear();
}

void Logger::write(std::string_view line, bool show) {
  if (show) {
    erase_status();
    out_ << line << '\n' << std::flush;
    show_status();
  }
  const std::string whole_line = text(line, '\n');
  if (holding_) held_ += whole_line;
  write_to_file(whole_line);
}

void Logger::write_to_file(std::string_view lines) {
  if (!file_.is_open()) return;
  file_ << lines << std::flush;
  if (file_) return;
  file_.close();
  erase_status();
  out_ << "warning: " << file_path_.string() << ": cannot write the log file; going on without it\n" << std::flush;
  show_status();
}

void Logger::show_status() {
  if (!status_.empty()) out_ << kWrapOff << status_ << kWrapOn << std::flush;
}

void Logger::erase_status() {
  if (!status_.empty()) out_ << kEraseLine << std::flush;
}

Logger& process_log() {
  static Logger logger(std::cerr, ::isatty(STDERR_FILENO) == 1);
  return logger;
}

}  // namespace asterism
