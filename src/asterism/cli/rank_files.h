#pragma once

#include <filesystem>
#include <memory>

#include "asterism/dist/comm.h"

namespace asterism::cli {

/// A folder that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Files that this rank can use in place of those of rank 0.
struct RankFiles {
  std::filesystem::path path;              // what was asked for, or its stand-in
  bool everywhere = true;                  // every rank has the files themselves
  std::shared_ptr<ScratchFolder> scratch;  // holds the stand-in
};

/// Finds out which ranks have `path`, a folder or a file. Where rank 0 has it and others have nothing of that name,
/// these get stand-ins from rank 0: folders with the same small files (configuration, tokenizer, chat template), and of
/// tensor files the header and the size, without values, which take no place on the disk. Other files beyond 64 MiB are
/// left out. All ranks call it. InputError when a file of rank 0 is damaged; RunError when a stand-in cannot be
/// written.
RankFiles find_rank_files(dist::Comm& world, const std::filesystem::path& path);

}  // namespace asterism::cli
