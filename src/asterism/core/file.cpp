#include "asterism/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/shortened.h"

namespace asterism {
namespace fs = std::filesystem;

namespace {

std::string reason() {
  return std::strerror(errno);
}

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// One step in which both names change what they stand for. False where the file system knows no such thing.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  run_error(b.string(), ": cannot publish: ", reason());
}

void rename_checked(const fs::path& from, const fs::path& to, const char* purpose) {
  if (::rename(from.c_str(), to.c_str()) != 0) run_error(to.string(), ": cannot ", purpose, ": ", reason());
}

}  // namespace

OpenedFile open_regular_file(const fs::path& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer. For regular files it has no meaning.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) input_error(path.string(), ": cannot open: ", reason());
  struct stat info {};
  if (::fstat(file.value, &info) != 0) input_error(path.string(), ": cannot read its size: ", reason());
  if (!S_ISREG(info.st_mode)) input_error(path.string(), ": not a regular file");
  return {std::exchange(file.value, -1), static_cast<uint64_t>(info.st_size)};
}

bool path_exists(const fs::path& path) {
  std::error_code failure;
  const bool found = fs::exists(path, failure);
  if (failure) input_error(shortened(path.string()), ": cannot look it up: ", failure.message());
  return found;
}

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const OpenedFile opened = open_regular_file(path);
  const Descriptor file{opened.descriptor};
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = opened.bytes;
  if (mapped->size_ == 0) return mapped;
  void* address = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED) input_error(path.string(), ": cannot map ", mapped->size_, " bytes: ", reason());
  mapped->data_ = static_cast<const std::byte*>(address);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(const void* begin, uint64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(begin);
  if (data_ == nullptr || first < data_ || first + bytes > data_ + size_) return;
  // A fault maps the cached pages of the whole window around it, so windows are given back: what is still needed of the
  // neighbours is mapped again.
  constexpr uint64_t kWindow = 1 << 16;
  const auto address = reinterpret_cast<uint64_t>(data_), at = reinterpret_cast<uint64_t>(first);
  const uint64_t low = std::max(address, at / kWindow * kWindow);
  const uint64_t high = std::min(address + size_, (at + bytes + kWindow - 1) / kWindow * kWindow);
  ::madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED);
}

FileWriter::FileWriter(const fs::path& path, Mode mode) : path_(path) {
  const int start = mode == Mode::kReplace ? O_TRUNC : O_APPEND;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | start, 0644);
  if (descriptor_ < 0) run_error(path.string(), ": cannot create: ", reason());
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) run_error(path_.string(), ": cannot write: ", reason());
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void FileWriter::sync() {
  if (::fsync(descriptor_) != 0) run_error(path_.string(), ": cannot sync: ", reason());
}

void FileWriter::close() {
  sync();
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) run_error(path_.string(), ": cannot close: ", reason());
}

FileStamp file_stamp(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) input_error(path.string(), ": cannot read its size: ", reason());
  if (!S_ISREG(info.st_mode)) input_error(path.string(), ": not a regular file");
  const int64_t seconds = info.st_mtim.tv_sec;
  return {static_cast<uint64_t>(info.st_size), seconds * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string read_text(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return std::string(file->text());
}

void write_text_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = temporary_path(path);
  try {
    FileWriter writer(temporary);
    writer.write(content);
    writer.close();
    rename_checked(temporary, path, "replace");
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

AtomicFolder::AtomicFolder(fs::path target, bool replace) : target_(std::move(target)), replace_(replace) {
  // A trailing slash would make the staging folder a child of the target.
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (fs::exists(target_) && !replace_) {
    input_error(target_.string(), ": exists already; choose another folder or remove it first");
  }
  staging_ = temporary_path(target_);
  std::error_code failure;
  fs::create_directories(staging_, failure);
  if (failure) run_error(staging_.string(), ": cannot create the folder: ", failure.message());
}

AtomicFolder::~AtomicFolder() {
  if (published_) return;
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

void AtomicFolder::publish() {
  for (const auto& entry : fs::recursive_directory_iterator(staging_)) sync_path(entry.path());
  sync_path(staging_);
  fs::path old;  // what stood at the target
  if (!replace_ || !fs::exists(target_)) {
    rename_checked(staging_, target_, "publish");
  } else if (exchange(staging_, target_)) {
    old = staging_;
  } else {
    old = temporary_path(target_);
    rename_checked(target_, old, "move the old folder aside");
    try {
      rename_checked(staging_, target_, "publish");
    } catch (...) {
      rename_checked(old, target_, "move the old folder back");
      throw;
    }
  }
  published_ = true;
  sync_path(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
  std::error_code ignored;  // the target is complete: what remains of the old one is a leftover
  if (!old.empty()) fs::remove_all(old, ignored);
}

void sync_path(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) run_error(path.string(), ": cannot open for sync: ", reason());
  if (::fsync(file.value) != 0) run_error(path.string(), ": cannot sync: ", reason());
}

fs::path temporary_path(const fs::path& path) {
  std::random_device device;
  return path.string() + text(".tmp-", ::getpid(), "-", device());
}

}  // namespace asterism
