#include "asterism/data/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "asterism/core/error.h"
#include "asterism/data/compressed_stream.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;

/// Reads with pread: unlike the pages of a mapped file, what was read does not count as memory of this process.
class FileStream final : public ByteStream {
 public:
  explicit FileStream(const fs::path& file) : file_(file.string()), descriptor_(::open(file.c_str(), O_RDONLY)) {
    if (descriptor_ < 0) input_error(file_, ": cannot open: ", std::strerror(errno));
  }
  ~FileStream() override { ::close(descriptor_); }
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;

  size_t read(char* to, size_t size) override {
    ssize_t count = 0;
    do {
      count = ::pread(descriptor_, to, size, static_cast<off_t>(at_));
    } while (count < 0 && errno == EINTR);
    if (count < 0) run_error(file_, ": cannot read at byte ", at_, ": ", std::strerror(errno));
    at_ += static_cast<uint64_t>(count);
    return static_cast<size_t>(count);
  }

  bool seekable() const override { return true; }
  void seek(uint64_t offset) override { at_ = offset; }

 private:
  std::string file_;
  int descriptor_;
  uint64_t at_ = 0;
};

}  // namespace

void ByteStream::seek(uint64_t) {
  run_error("compressed data can only be read from its beginning");
}

Container container_of(const fs::path& file) {
  char bytes[4] = {};
  FileStream stream(file);
  size_t count = 0;
  while (count < sizeof bytes) {
    const size_t more = stream.read(bytes + count, sizeof bytes - count);
    if (more == 0) break;
    count += more;
  }
  const std::string_view begin(bytes, count);
  if (begin.starts_with("\x1F\x8B")) return Container::Gzip;
  if (begin == "\x28\xB5\x2F\xFD") return Container::Zstd;
  // A file that zstd has written with several threads or with padding may begin with a frame to be skipped.
  if (begin.size() == 4 && (begin[0] & '\xF0') == '\x50' && begin.substr(1) == "\x2A\x4D\x18") return Container::Zstd;
  if (begin == "PAR1") return Container::Parquet;
  return Container::Plain;
}

std::string_view container_name(Container container) {
  switch (container) {
    case Container::Plain:
      return "";
    case Container::Gzip:
      return "gzip";
    case Container::Zstd:
      return "Zstandard";
    case Container::Parquet:
      return "Parquet";
  }
  return "";
}

std::unique_ptr<ByteStream> open_bytes(const fs::path& file, Container container) {
  auto stream = std::make_unique<FileStream>(file);
  if (container == Container::Gzip) return gunzip(std::move(stream), file.string());
  if (container == Container::Zstd) return unzstd(std::move(stream), file.string());
  return stream;
}

}  // namespace asterism::data
