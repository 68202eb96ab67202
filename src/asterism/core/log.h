#pragma once

#include <filesystem>
#include <fstream>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>

#include "asterism/core/error.h"

namespace asterism {

/// Lines for people: to a stream (the process's stderr) and, while one is open, to a file. Thread-safe: lines of
/// different threads never mix. On a terminal the last line may be a status line (a progress bar) that is replaced in
/// place and stays below the lines.
class Logger {
 public:
  /// `out` must outlive the logger.
  Logger(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {}
  ~Logger() { set_status(""); }

  /// One line. Those of `warning` and `error` begin with "warning: " and "error: ".
  void info(std::string_view line);
  void warning(std::string_view line);
  void error(std::string_view line);

  /// Shows, replaces or (with "") removes the status line. Nothing happens without a terminal or when quiet.
  void set_status(std::string_view line);

  /// Quiet: the stream gets warnings and errors only. The file gets everything all the same.
  void set_quiet(bool quiet);
  bool quiet() const;
  bool terminal() const { return terminal_; }

  /// Appends all further lines to `path`. RunError when it cannot be opened. A file that cannot be written later on
  /// (a full disk) is given up with a warning: a log is no reason to end a run.
  void open_file(const std::filesystem::path& path);
  /// Keeps what is written from now on for the file that open_file names later: a run tells much about itself before
  /// it has a folder.
  void hold_lines();
  /// Ends the file, or the keeping of lines for one.
  void close_file();

 private:
  void write(std::string_view line, bool show);
  void write_to_file(std::string_view lines);
  void show_status();
  void erase_status();

  std::ostream& out_;
  const bool terminal_;
  mutable std::mutex mutex_;
  bool quiet_ = false;
  std::string status_;
  std::filesystem::path file_path_;
  std::ofstream file_;
  bool holding_ = false;
  std::string held_;  // lines for a file that is not open yet
};

/// The logger of this process, on stderr.
Logger& process_log();

template <typename... Parts>
void log_info(const Parts&... parts) {
  process_log().info(text(parts...));
}

template <typename... Parts>
void log_warning(const Parts&... parts) {
  process_log().warning(text(parts...));
}

}  // namespace asterism
