#include "asterism/core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "tests/support/file_faults.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;
using Names = std::set<std::string>;

TEST(MappedFile, HoldsTheBytesAfterTheFileIsGone) {
  const TemporaryFolder folder;
  const auto file = MappedFile::open(folder.write("a", "content"));
  fs::remove(folder / "a");
  EXPECT_EQ(file->size(), 7U);
  EXPECT_EQ(file->text(), "content");
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const TemporaryFolder folder;
  const auto file = MappedFile::open(folder.write("a", ""));
  EXPECT_EQ(file->size(), 0U);
  EXPECT_EQ(file->text(), "");
}

TEST(MappedFile, ReleasedBytesAreNoMemoryAndCanBeReadAgain) {
  constexpr uint64_t kBytes = 64 << 20;
  const TemporaryFolder folder;
  const auto file = MappedFile::open(folder.write("a", std::string(kBytes, 'x')));
  const auto count = [&] { return static_cast<uint64_t>(std::count(file->text().begin(), file->text().end(), 'x')); };
  const uint64_t before = resident_bytes();
  EXPECT_EQ(count(), kBytes);
  EXPECT_GE(resident_bytes(), before + kBytes * 9 / 10);
  file->release(file->data() + 100, kBytes - 200);  // not at borders of pages
  EXPECT_LE(resident_bytes(), before + kBytes / 10);
  EXPECT_EQ(count(), kBytes);
  std::vector<char> elsewhere(1 << 16, 'y');  // memory of one's own must not be emptied
  file->release(elsewhere.data(), elsewhere.size());
  EXPECT_EQ(std::count(elsewhere.begin(), elsewhere.end(), 'y'), 1 << 16);
}

TEST(MappedFile, RefusesAMissingFileAndAFolderByName) {
  const TemporaryFolder folder;
  const std::string missing = error_of<InputError>([&] { MappedFile::open(folder / "absent"); });
  EXPECT_NE(missing.find("absent"), std::string::npos);
  const std::string directory = error_of<InputError>([&] { MappedFile::open(folder.path()); });
  EXPECT_NE(directory.find("not a regular file"), std::string::npos);
}

TEST(MappedFile, RefusesPipesAndDevicesWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder / "pipe", std::filesystem::path("/dev/zero")}) {
    const std::string message = error_of<InputError>([&] { MappedFile::open(path); });
    EXPECT_EQ(message, path.string() + ": not a regular file");
  }
}

TEST(PathExists, FollowsLinksAndTellsWhenItCannotKnow) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  fs::create_symlink(folder.write("file", ""), folder / "link");
  fs::create_symlink(folder / "absent", folder / "dangling");
  fs::create_symlink(folder / "loop", folder / "loop");
  EXPECT_TRUE(path_exists(folder / "file"));
  EXPECT_TRUE(path_exists(folder / "link"));
  EXPECT_FALSE(path_exists(folder / "absent"));
  EXPECT_FALSE(path_exists(folder / "dangling"));
  EXPECT_FALSE(path_exists(folder / "file" / "below"));
  EXPECT_NE(error_of<InputError>([&] { path_exists(folder / "loop"); }).find("loop: cannot look it up"),
            std::string::npos);
  EXPECT_LT(error_of<InputError>([&] { path_exists(folder / std::string(100'000, 'x')); }).size(), 1000U);
}

TEST(FileWriter, WritesPartsInOrderAndReplacesWhatWasThere) {
  const TemporaryFolder folder;
  FileWriter writer(folder.write("a", "something longer"));
  writer.write("one ");
  writer.write("two", 3);
  writer.close();
  EXPECT_EQ(read_text(folder / "a"), "one two");
}

TEST(FileWriter, AFullDiskIsAnErrorWithTheReason) {
  FileWriter writer("/dev/full");
  const std::string message = error_of<RunError>([&] { writer.write("x"); });
  EXPECT_NE(message.find("/dev/full"), std::string::npos);
  EXPECT_NE(message.find("No space left"), std::string::npos);
}

TEST(FileWriter, AFileInPlaceOfAFolderIsAnError) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(FileWriter(folder / "file" / "inner"), RunError);
}

TEST(WriteTextAtomically, ReplacesTheTextAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_text_atomically(folder.write("a", "old"), "new");
  EXPECT_EQ(read_text(folder / "a"), "new");
  EXPECT_EQ(folder.entries(), (Names{"a"}));
}

TEST(WriteTextAtomically, AFailureKeepsTheTargetAndLeavesNothingElse) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  EXPECT_THROW(write_text_atomically(folder / "a", "new"), RunError);
  EXPECT_TRUE(fs::is_directory(folder / "a"));
  EXPECT_EQ(folder.entries(), (Names{"a"}));
}

TEST(AtomicFolder, AppearsOnlyWhenPublished) {
  const TemporaryFolder folder;
  AtomicFolder atomic(folder / "out");
  write_text_atomically(atomic.staging() / "a", "text");
  EXPECT_FALSE(fs::exists(folder / "out"));
  atomic.publish();
  EXPECT_EQ(read_text(folder / "out" / "a"), "text");
  EXPECT_EQ(folder.entries(), (Names{"out"}));
}

TEST(AtomicFolder, UnpublishedItLeavesNothing) {
  const TemporaryFolder folder;
  {
    const AtomicFolder atomic(folder / "out");
    write_text_atomically(atomic.staging() / "a", "text");
  }
  EXPECT_EQ(folder.entries(), Names{});
}

TEST(AtomicFolder, ATrailingSlashMakesNoDifference) {
  const TemporaryFolder folder;
  AtomicFolder atomic((folder / "out").string() + "/");
  write_text_atomically(atomic.staging() / "a", "text");
  atomic.publish();
  EXPECT_EQ(read_text(folder / "out" / "a"), "text");
  EXPECT_EQ(folder.entries(), (Names{"out"}));
}

TEST(AtomicFolder, AnExistingTargetIsRefusedOrReplacedAsAsked) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.write("out/old", "text");
  EXPECT_THROW(AtomicFolder(folder / "out"), InputError);

  AtomicFolder atomic(folder / "out", /*replace=*/true);
  write_text_atomically(atomic.staging() / "new", "text");
  EXPECT_TRUE(fs::exists(folder / "out" / "old"));
  atomic.publish();
  EXPECT_TRUE(fs::exists(folder / "out" / "new"));
  EXPECT_FALSE(fs::exists(folder / "out" / "old"));
  EXPECT_EQ(folder.entries(), (Names{"out"}));
}

/// A folder `out` with a file `old`, and a staging folder with a file `new` that is to take its place.
void replace_with_fault(const TemporaryFolder& folder, const testing::FileFaults::Fault& fault) {
  fs::create_directory(folder / "out");
  folder.write("out/old", "");
  AtomicFolder atomic(folder / "out", /*replace=*/true);
  FileWriter(atomic.staging() / "new").close();
  const testing::FileFaults faults(folder.path(), fault);
  atomic.publish();
}

TEST(AtomicFolder, ReplacesWithoutAMomentInBetweenWhereTheFileSystemCan) {
  using Kind = testing::FileFaults::Kind;
  const TemporaryFolder folder;
  // A second rename would fail: one call does it.
  replace_with_fault(folder, {.kind = Kind::kRename, .number = 2, .error = EIO});
  EXPECT_EQ(folder.entries(), Names{"out"});
  EXPECT_TRUE(fs::exists(folder / "out/new"));
}

TEST(AtomicFolder, MovesTheOldOneAsideWhereNamesCannotBeExchanged) {
  using Kind = testing::FileFaults::Kind;
  const TemporaryFolder folder;
  replace_with_fault(folder, {.kind = Kind::kRename, .number = 1, .error = EINVAL});
  EXPECT_EQ(folder.entries(), Names{"out"});
  EXPECT_TRUE(fs::exists(folder / "out/new"));
  EXPECT_FALSE(fs::exists(folder / "out/old"));
}

TEST(AtomicFolder, AFailedReplacementLeavesTheOldOne) {
  using Kind = testing::FileFaults::Kind;
  const TemporaryFolder folder;
  EXPECT_THROW(replace_with_fault(folder, {.kind = Kind::kRename, .number = 1, .error = EROFS}), RunError);
  EXPECT_EQ(folder.entries(), Names{"out"});
  EXPECT_TRUE(fs::exists(folder / "out/old"));
}

TEST(AtomicFolder, AFileInPlaceOfTheParentIsAnErrorThatLeavesNothing) {
  const TemporaryFolder folder;
  folder.write("file", "kept");
  EXPECT_THROW(AtomicFolder(folder / "file" / "out"), RunError);
  EXPECT_EQ(read_text(folder / "file"), "kept");
  EXPECT_EQ(folder.entries(), (Names{"file"}));
}

TEST(AtomicFolder, ATargetThatAppearsMeanwhileIsKept) {
  const TemporaryFolder folder;
  {
    AtomicFolder atomic(folder / "out");
    fs::create_directory(folder / "out");
    folder.write("out/other", "text");
    EXPECT_THROW(atomic.publish(), RunError);
  }
  EXPECT_EQ(read_text(folder / "out" / "other"), "text");
  EXPECT_EQ(folder.entries(), (Names{"out"}));
}

}  // namespace
}  // namespace asterism
