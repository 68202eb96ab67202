#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace asterism {

/// A regular file that is open for reading. The owner closes the descriptor.
struct OpenedFile {
  int descriptor = -1;
  uint64_t bytes = 0;
};

/// InputError when the file cannot be opened or is something else: a folder, a device, a pipe (nobody waits for its
/// other end). Symbolic links are followed.
OpenedFile open_regular_file(const std::filesystem::path& path);

/// Whether there is a file or folder of this name; a link to nothing is none. InputError when the system cannot tell
/// (a loop of links, a name too long, a folder that may not be searched).
bool path_exists(const std::filesystem::path& path);

/// A whole file mapped read-only. Pages are read when touched. Closing unmaps, so views must keep the object alive.
class MappedFile {
 public:
  /// InputError when the file cannot be opened. An empty file is mapped as size 0.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  /// Gives the pages of these bytes back to the system: they no longer count as memory of this process, and are read
  /// again when touched. Bytes outside of the mapping are left alone.
  void release(const void* begin, uint64_t bytes) const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

/// Sequential writer whose errors are exceptions: open, every write, flush and close are checked (RunError with path
/// and the system's reason), so a full disk cannot pass unseen. `close` syncs to the device before it returns.
class FileWriter {
 public:
  enum class Mode { kReplace, kAppend };
  explicit FileWriter(const std::filesystem::path& path, Mode mode = Mode::kReplace);
  ~FileWriter();  // closes without sync when close() was not reached
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();  // what was written so far survives a crash of the machine
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// What tells that a file was changed: its size and the time of its last change.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  bool operator==(const FileStamp&) const = default;
};

/// InputError when the file cannot be found or is not a regular file.
FileStamp file_stamp(const std::filesystem::path& path);

/// Whole file as text. InputError when it cannot be read.
std::string read_text(const std::filesystem::path& path);

/// Writes a temporary file beside `path`, syncs it and renames it over `path`: readers see the old or the new text.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// A folder that appears at once: files are written below `staging()`, and `publish()` syncs them and their folders and
/// renames the staging folder to `target`. Destroyed unpublished, it removes what was written.
/// With `replace`, an existing target changes places with the staging folder in one step and is removed afterwards
/// (where the file system cannot do that, it is moved aside first); otherwise it is an InputError.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path target, bool replace = false);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& staging() const { return staging_; }
  void publish();

 private:
  std::filesystem::path target_, staging_;
  bool replace_ = false;
  bool published_ = false;
};

/// fsync of a file or folder; RunError on failure.
void sync_path(const std::filesystem::path& path);

/// A name beside `path` that nothing has: <path>.tmp-<process>-<random>. remove_leftovers (folder.h) knows such names.
std::filesystem::path temporary_path(const std::filesystem::path& path);

}  // namespace asterism
