#include "asterism/core/folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/file_faults.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::FileFaults;
using testing::TemporaryFolder;
using Names = std::set<std::string>;

TEST(RemoveLeftovers, RemovesWhatKilledWritesLeaveAndNothingElse) {
  const TemporaryFolder folder;
  fs::create_directories(temporary_path(folder / "step-00000004") / "inner");
  write_text_atomically(temporary_path(folder / "latest"), "half");
  for (const char* kept : {"latest", "notes.tmp", "a.tmp-1", "b.tmp-1-2-mine", ".tmp-1-2"}) folder.write(kept, "");
  remove_leftovers(folder.path());
  EXPECT_EQ(folder.entries(), (Names{"latest", "notes.tmp", "a.tmp-1", "b.tmp-1-2-mine", ".tmp-1-2"}));
  remove_leftovers(folder / "absent");
}

TEST(RemoveFolder, IsCompleteOrAbsentAtEveryMoment) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  folder.write("a/one", "1");
  folder.write("a/two", "2");
  {
    const FileFaults faults(folder.path(), {.kind = FileFaults::Kind::kRemove, .number = 2, .error = EIO});
    const std::string error = error_of<RunError>([&] { remove_folder(folder / "a"); });
    EXPECT_NE(error.find("cannot remove"), std::string::npos) << error;
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
  remove_leftovers(folder.path());
  EXPECT_EQ(folder.entries(), Names{});
  EXPECT_THROW(remove_folder(folder / "absent"), RunError);
}

TEST(AvailableBytes, TellsWhatTheFileSystemHas) {
  const TemporaryFolder folder;
  EXPECT_EQ(available_bytes(folder.path()), fs::space(folder.path()).available);
  EXPECT_THROW(available_bytes(folder / "absent"), RunError);
}

/// The exit code of a child process: 0 when it gets the lock, 1 when it is told that another process works there.
int lock_in_another_process(const fs::path& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const FolderLock lock(folder);
      ::_exit(0);
    } catch (const InputError& error) {
      ::_exit(std::string(error.what()).find("another process works in this folder") == std::string::npos ? 2 : 1);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(FolderLock, KeepsOtherProcessesOutUntilItEnds) {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_EQ(lock_in_another_process(folder.path()), 1);
  }
  EXPECT_EQ(lock_in_another_process(folder.path()), 0);
  EXPECT_EQ(folder.entries(), Names{});
}

TEST(FolderLock, NamesAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of<InputError>([&] { FolderLock(folder / "absent"); }).find("absent"), std::string::npos);
}

TEST(Folder, WhatTheDiskCannotHoldIsRefusedBeforeItIsWritten) {
  const TemporaryFolder folder;
  const std::filesystem::path target = folder / "not" / "there";
  check_free_space(target, 1);
  const std::string message = error_of<InputError>([&] { check_free_space(target, uint64_t{1} << 62); });
  EXPECT_NE(message.find(target.string() + ": the result needs 4611686018427 MB"), std::string::npos) << message;
}

}  // namespace
}  // namespace asterism
