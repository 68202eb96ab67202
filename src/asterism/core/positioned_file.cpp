#include "asterism/core/positioned_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism {
namespace fs = std::filesystem;

namespace {

std::string last_reason() {
  return std::strerror(errno);
}

}  // namespace

PositionedReader::PositionedReader(fs::path path) : path_(std::move(path)) {
  const OpenedFile opened = open_regular_file(path_);
  descriptor_ = opened.descriptor;
  size_ = opened.bytes;
}

PositionedReader::~PositionedReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PositionedReader::read(void* data, size_t bytes, uint64_t offset) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) run_error(path_.string(), ": cannot read at byte ", offset, ": ", last_reason());
    if (got == 0) run_error(path_.string(), ": ends at byte ", offset, ", expected ", bytes, " more; it was changed");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

PositionedWriter::PositionedWriter(fs::path path, uint64_t bytes) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC, 0644);
  if (descriptor_ < 0) run_error(path_.string(), ": cannot create: ", last_reason());
  if (bytes == 0) return;
  const int failure = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  // A file system that cannot reserve grows the file as it is written.
  if (failure != 0 && failure != EOPNOTSUPP && failure != EINVAL) {
    ::close(descriptor_);
    run_error(path_.string(), ": cannot reserve ", bytes, " bytes: ", std::strerror(failure));
  }
}

PositionedWriter::~PositionedWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PositionedWriter::write(const void* data, size_t bytes, uint64_t offset) {
  const char* next = static_cast<const char*>(data);
  const uint64_t begin = offset, all = bytes;
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) run_error(path_.string(), ": cannot write: ", last_reason());
    next += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
#ifdef SYNC_FILE_RANGE_WRITE
  ::sync_file_range(descriptor_, static_cast<off64_t>(begin), static_cast<off64_t>(all), SYNC_FILE_RANGE_WRITE);
#endif
}

void PositionedWriter::close() {
  if (::fsync(descriptor_) != 0) run_error(path_.string(), ": cannot sync: ", last_reason());
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) run_error(path_.string(), ": cannot close: ", last_reason());
}

}  // namespace asterism
