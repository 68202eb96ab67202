#include "asterism/core/log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

TEST(Logger, WritesLinesAndMarksWarnings) {
  std::ostringstream out;
  Logger log(out, false);
  log.info("loading");
  log.warning("slow disk");
  EXPECT_EQ(out.str(), "loading\nwarning: slow disk\n");
}

TEST(Logger, QuietShowsOnlyWarningsAndErrorsButTheFileGetsAll) {
  const TemporaryFolder folder;
  std::ostringstream out;
  Logger log(out, false);
  log.set_quiet(true);
  log.open_file(folder / "log.txt");
  log.info("loading");
  log.warning("slow disk");
  log.error("full disk");
  EXPECT_EQ(out.str(), "warning: slow disk\nerror: full disk\n");
  EXPECT_EQ(read_text(folder / "log.txt"), "loading\nwarning: slow disk\nerror: full disk\n");
}

TEST(Logger, AppendsToAnExistingFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("log.txt", "first run\n");
  std::ostringstream out;
  Logger log(out, false);
  log.open_file(path);
  log.info("second run");
  log.close_file();
  log.info("after closing");
  EXPECT_EQ(read_text(path), "first run\nsecond run\n");
}

TEST(Logger, HeldLinesComeFirstInTheFile) {
  const TemporaryFolder folder;
  std::ostringstream out;
  Logger log(out, false);
  log.info("dropped");
  log.hold_lines();
  log.info("held");
  EXPECT_EQ(out.str(), "dropped\nheld\n");
  log.open_file(folder / "log.txt");
  log.info("later");
  log.close_file();
  EXPECT_EQ(read_text(folder / "log.txt"), "held\nlater\n");
  log.hold_lines();
  log.info("of a run without a file");
  log.close_file();
  log.open_file(folder / "log.txt");
  EXPECT_EQ(read_text(folder / "log.txt"), "held\nlater\n");
}

TEST(Logger, NamesAFileThatCannotBeOpened) {
  const TemporaryFolder folder;
  std::ostringstream out;
  Logger log(out, false);
  const std::string error = error_of<RunError>([&] { log.open_file(folder / "absent" / "log.txt"); });
  EXPECT_NE(error.find("absent/log.txt"), std::string::npos) << error;
}

TEST(Logger, GoesOnWithoutAFileOnAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "the system has no /dev/full";
  std::ostringstream out;
  Logger log(out, false);
  log.open_file("/dev/full");
  log.info("one");
  log.info("two");
  EXPECT_EQ(out.str(), "one\nwarning: /dev/full: cannot write the log file; going on without it\ntwo\n");
}

TEST(Logger, LinesOfThreadsDoNotMix) {
  std::ostringstream out;
  Logger log(out, false);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 200; ++i) log.info("0123456789");
    });
  }
  for (auto& thread : threads) thread.join();
  std::istringstream lines(out.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_EQ(line, "0123456789");
  EXPECT_EQ(count, 800);
}

TEST(Logger, KeepsTheStatusLineBelowTheLines) {
  std::ostringstream out;
  Logger log(out, true);
  log.set_status("50%");
  log.info("saved");
  log.set_status("");
  const std::string erase = "\r\033[K", bar = "\033[?7l50%\033[?7h";
  EXPECT_EQ(out.str(), text(bar, erase, "saved\n", bar, erase));
}

TEST(Logger, HasNoStatusLineWithoutATerminalOrWhenQuiet) {
  std::ostringstream file_out, quiet_out;
  Logger to_file(file_out, false), quiet(quiet_out, true);
  quiet.set_quiet(true);
  to_file.set_status("50%");
  quiet.set_status("50%");
  EXPECT_EQ(file_out.str(), "");
  EXPECT_EQ(quiet_out.str(), "");
}

}  // namespace
}  // namespace asterism
