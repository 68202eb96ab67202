#include "asterism/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "asterism/core/error.h"

namespace asterism {
namespace fs = std::filesystem;

namespace {

std::string reason() {
  return std::strerror(errno);
}

std::string unique_suffix() {
  std::random_device device;
  return text(".tmp-", ::getpid(), "-", device());
}

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) input_error(path.string(), ": cannot open: ", reason());
  struct stat info {};
  if (::fstat(file.value, &info) != 0) input_error(path.string(), ": cannot read its size: ", reason());
  if (!S_ISREG(info.st_mode)) input_error(path.string(), ": not a regular file");
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = static_cast<uint64_t>(info.st_size);
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
  const fs::path temporary = path.string() + unique_suffix();
  try {
    FileWriter writer(temporary);
    writer.write(content);
    writer.close();
    std::error_code failure;
    fs::rename(temporary, path, failure);
    if (failure) run_error(path.string(), ": cannot replace: ", failure.message());
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
  staging_ = target_.string() + unique_suffix();
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
  fs::path aside;
  std::error_code failure;
  if (replace_ && fs::exists(target_)) {
    aside = target_.string() + unique_suffix() + "-old";
    fs::rename(target_, aside, failure);
    if (failure) run_error(target_.string(), ": cannot move the old folder aside: ", failure.message());
  }
  fs::rename(staging_, target_, failure);
  if (failure) {
    std::error_code ignored;
    if (!aside.empty()) fs::rename(aside, target_, ignored);
    run_error(target_.string(), ": cannot publish: ", failure.message());
  }
  published_ = true;
  sync_path(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
  if (!aside.empty()) fs::remove_all(aside, failure);
}

void sync_path(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) run_error(path.string(), ": cannot open for sync: ", reason());
  if (::fsync(file.value) != 0) run_error(path.string(), ": cannot sync: ", reason());
}

}  // namespace asterism
