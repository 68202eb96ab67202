#pragma once

#include <cstdint>
#include <filesystem>

namespace asterism {

/// Removes what a write of file.h or `remove_folder` left directly inside `folder` when its process was killed: entries
/// whose names are temporary_path's. Only where no other process writes (FolderLock). A folder that is not there is
/// fine.
void remove_leftovers(const std::filesystem::path& folder);

/// Removes a folder with its contents. It is complete or absent under its name at every moment: it gets a temporary
/// name first. RunError when that is impossible.
void remove_folder(const std::filesystem::path& folder);

/// What this user may still write on the file system that holds `path`. RunError when it cannot be told.
uint64_t available_bytes(const std::filesystem::path& path);

/// InputError when fewer than `bytes` may be written to `path`, which need not exist yet.
void check_free_space(const std::filesystem::path& path, uint64_t bytes);

/// Makes this process the only one with a lock on a folder, until the end of the scope or of the process, however it
/// ends. Nothing is written.
class FolderLock {
 public:
  /// InputError when another process holds it. A file system without locks gives a warning.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace asterism
