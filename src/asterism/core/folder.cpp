#include "asterism/core/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <regex>
#include <string>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"

namespace asterism {
namespace fs = std::filesystem;

namespace {

bool is_temporary(const fs::path& path) {
  static const std::regex pattern(R"(.+\.tmp-[0-9]+-[0-9]+)");
  return std::regex_match(path.filename().string(), pattern);
}

}  // namespace

void remove_leftovers(const fs::path& folder) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_temporary(entry.path())) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) {
    std::error_code failure;
    fs::remove_all(leftover, failure);
    if (failure) run_error(leftover.string(), ": cannot remove what a killed write left: ", failure.message());
  }
}

void remove_folder(const fs::path& folder) {
  const fs::path aside = temporary_path(folder);
  std::error_code failure;
  fs::rename(folder, aside, failure);
  if (!failure) fs::remove_all(aside, failure);
  if (failure) run_error(folder.string(), ": cannot remove: ", failure.message());
}

uint64_t available_bytes(const fs::path& path) {
  std::error_code failure;
  const fs::space_info space = fs::space(path, failure);
  if (failure) run_error(path.string(), ": cannot tell the free space: ", failure.message());
  return space.available;
}

void check_free_space(const fs::path& path, uint64_t bytes) {
  constexpr uint64_t kMegabyte = 1'000'000;
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing)) existing = existing.parent_path();
  const uint64_t free = available_bytes(existing);
  if (bytes <= free) return;
  input_error(path.string(), ": the result needs ", bytes / kMegabyte, " MB, the disk has ", free / kMegabyte,
              " MB free; make space or choose another disk");
}

FolderLock::FolderLock(const fs::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) input_error(folder.string(), ": cannot open the folder: ", std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  if (reason == EWOULDBLOCK) {
    ::close(descriptor_);
    input_error(folder.string(), ": another process works in this folder; wait for its end, or choose another name");
  }
  log_warning(folder.string(), ": cannot lock the folder (", std::strerror(reason),
              "); see to it that no second process uses it");
}

FolderLock::~FolderLock() {
  ::close(descriptor_);
}

}  // namespace asterism
