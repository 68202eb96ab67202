#include "asterism/core/positioned_file.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

TEST(PositionedFile, PiecesOfSeveralThreadsMakeTheWhole) {
  const TemporaryFolder folder;
  const std::string content = "the quick brown fox jumps over the lazy dog";
  PositionedWriter writer(folder / "file", content.size());
  std::vector<std::thread> threads;
  for (size_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (size_t i = content.size() - 1 - part; i < content.size(); i -= 4) writer.write(&content[i], 1, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.close();
  EXPECT_EQ(read_text(folder / "file"), content);
  const PositionedReader reader(folder / "file");
  EXPECT_EQ(reader.size(), content.size());
  std::string word(5, ' ');
  reader.read(word.data(), word.size(), 4);
  EXPECT_EQ(word, "quick");
}

TEST(PositionedFile, TheSizeIsReservedFromTheStart) {
  const TemporaryFolder folder;
  const PositionedWriter writer(folder / "file", 12345);
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 12345U);
}

TEST(PositionedFile, FailuresNameTheFile) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of<InputError>([&] { PositionedReader(folder / "none"); }).find("none: cannot open"),
            std::string::npos);
  EXPECT_NE(error_of<RunError>([&] { PositionedWriter(folder / "no" / "file", 1); }).find("cannot create"),
            std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { PositionedReader(folder.path()); }).find("not a regular file"),
            std::string::npos);
  const PositionedReader reader(folder.write("short", "abc"));
  char buffer[8];
  EXPECT_NE(error_of<RunError>([&] { reader.read(buffer, 8, 1); }).find("short: ends at byte 3"), std::string::npos);
}

}  // namespace
}  // namespace asterism
