#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>

namespace asterism::testing {

/// While it lives, calls of this process that write below a folder are counted, and one of them (and, when the fault is
/// there to stay, all after it) fails as the system lets it fail: a full disk, a read-only mount, a broken device. The
/// calls are those of the C library, so whatever writes is covered: this program's own code, std::filesystem, streams.
/// One at a time.
class FileFaults {
 public:
  enum class Kind { kAny, kOpen, kWrite, kSync, kRename, kMakeFolder, kRemove };

  struct Fault {
    Kind kind = Kind::kAny;
    int64_t number = 0;  // of the call of this kind that fails, from 1; 0 = none
    int error = EIO;
    bool stays = false;
  };

  FileFaults(const std::filesystem::path& below, const Fault& fault);
  ~FileFaults();
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;

  /// Calls of the fault's kind so far.
  int64_t count() const;
};

}  // namespace asterism::testing
