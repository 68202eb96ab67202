#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace asterism {

/// A file that is read in pieces, in any order, by any number of threads: into memory of the caller, unlike a mapping,
/// whose pages would count as memory of the process.
class PositionedReader {
 public:
  /// InputError when it is no regular file that can be opened.
  explicit PositionedReader(std::filesystem::path path);
  ~PositionedReader();
  PositionedReader(const PositionedReader&) = delete;
  PositionedReader& operator=(const PositionedReader&) = delete;

  /// RunError when the bytes cannot be read, or the file ends before them.
  void read(void* data, size_t bytes, uint64_t offset) const;
  uint64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// A file of a known size that is written in pieces, in any order, by any number of threads. Its place on the disk is
/// reserved at once where the file system can, so that a full disk shows before the work. RunError when anything fails.
class PositionedWriter {
 public:
  /// An existing file is replaced.
  PositionedWriter(std::filesystem::path path, uint64_t bytes);
  ~PositionedWriter();  // closes without sync when close() was not reached
  PositionedWriter(const PositionedWriter&) = delete;
  PositionedWriter& operator=(const PositionedWriter&) = delete;

  /// The system starts to write the bytes out at once, so that close() has little left to wait for.
  void write(const void* data, size_t bytes, uint64_t offset);
  /// Syncs to the device and closes.
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace asterism
