#include "tests/support/file_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <mutex>
#include <stdexcept>
#include <string>

namespace asterism::testing {

namespace {

using Kind = FileFaults::Kind;

std::mutex mutex;
bool active = false;
std::string folder;
FileFaults::Fault planned;
int64_t calls = 0;

/// The path that a name means for a call relative to `directory`, or that of an open file when there is no name.
std::string path_of(int directory, const char* name) {
  if (name != nullptr && name[0] == '/') return name;
  std::string base(4096, '\0');
  const std::string link =
      directory == AT_FDCWD ? std::string("/proc/self/cwd") : "/proc/self/fd/" + std::to_string(directory);
  const ssize_t length = ::readlink(link.c_str(), base.data(), base.size());
  base.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return name == nullptr ? base : base + "/" + name;
}

/// True when the call has to fail; errno is set then.
bool fails(Kind kind, int directory, const char* name) {
  const std::scoped_lock lock(mutex);
  if (!active || (planned.kind != Kind::kAny && planned.kind != kind)) return false;
  if (!(path_of(directory, name) + "/").starts_with(folder)) return false;
  ++calls;
  if (planned.number == 0 || calls < planned.number || (calls > planned.number && !planned.stays)) return false;
  errno = planned.error;
  return true;
}

template <typename Function>
Function* system_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool writes(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY;
}

}  // namespace

FileFaults::FileFaults(const std::filesystem::path& below, const Fault& fault) {
  const std::scoped_lock lock(mutex);
  if (active) throw std::logic_error("one FileFaults at a time");
  active = true;
  folder = (below / "").string();  // ends with a slash
  planned = fault;
  calls = 0;
}

FileFaults::~FileFaults() {
  const std::scoped_lock lock(mutex);
  active = false;
}

int64_t FileFaults::count() const {
  const std::scoped_lock lock(mutex);
  return calls;
}

}  // namespace asterism::testing

// The program's own functions come before those of the C library, for the libraries that it loads as well.
using asterism::testing::fails;
using asterism::testing::Kind;
using asterism::testing::system_function;

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const next = system_function<int(const char*, int, mode_t)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (asterism::testing::writes(flags) && fails(Kind::kOpen, AT_FDCWD, path)) return -1;
  return next(path, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  static auto* const next = system_function<ssize_t(int, const void*, size_t)>("write");
  if (fails(Kind::kWrite, file, nullptr)) return -1;
  return next(file, data, bytes);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  static auto* const next = system_function<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (fails(Kind::kWrite, file, nullptr)) return -1;
  return next(file, data, bytes, offset);
}

int posix_fallocate(int file, off_t offset, off_t bytes) {
  static auto* const next = system_function<int(int, off_t, off_t)>("posix_fallocate");
  if (fails(Kind::kWrite, file, nullptr)) return errno;
  return next(file, offset, bytes);
}

int ftruncate(int file, off_t bytes) noexcept {
  static auto* const next = system_function<int(int, off_t)>("ftruncate");
  if (fails(Kind::kWrite, file, nullptr)) return -1;
  return next(file, bytes);
}

ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) noexcept {
  static auto* const next = system_function<ssize_t(int, int, off_t*, size_t)>("sendfile");
  if (fails(Kind::kWrite, to, nullptr)) return -1;
  return next(to, from, offset, bytes);
}

int fsync(int file) {
  static auto* const next = system_function<int(int)>("fsync");
  if (fails(Kind::kSync, file, nullptr)) return -1;
  return next(file);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = system_function<int(const char*, const char*)>("rename");
  if (fails(Kind::kRename, AT_FDCWD, to)) return -1;
  return next(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static auto* const next = system_function<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (fails(Kind::kRename, to_folder, to)) return -1;
  return next(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const next = system_function<int(const char*, mode_t)>("mkdir");
  if (fails(Kind::kMakeFolder, AT_FDCWD, path)) return -1;
  return next(path, mode);
}

int remove(const char* path) noexcept {
  static auto* const next = system_function<int(const char*)>("remove");
  if (fails(Kind::kRemove, AT_FDCWD, path)) return -1;
  return next(path);
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  static auto* const next = system_function<int(int, const char*, int)>("unlinkat");
  if (fails(Kind::kRemove, directory, name)) return -1;
  return next(directory, name, flags);
}

}  // extern "C"
