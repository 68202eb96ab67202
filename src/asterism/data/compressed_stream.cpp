#include "asterism/data/compressed_stream.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <vector>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

constexpr size_t kInputBytes = size_t{128} << 10;

/// Compressed bytes in pieces, with their place in the file.
class Input {
 public:
  explicit Input(std::unique_ptr<ByteStream> source) : source_(std::move(source)), buffer_(kInputBytes) {}

  /// The bytes not used yet; reads more when there are none. Empty at the end of the file only.
  std::string_view unused() {
    if (begin_ == end_) {
      before_ += end_;
      begin_ = 0;
      end_ = source_->read(buffer_.data(), buffer_.size());
    }
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void use(size_t count) { begin_ += count; }
  uint64_t offset() const { return before_ + begin_; }

 private:
  std::unique_ptr<ByteStream> source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t before_ = 0;  // bytes of the file in front of the buffer
};

[[noreturn]] void cut_off(const std::string& name, const char* kind) {
  input_error(name, ": the file ends in the middle of its ", kind,
              " data; it was not written or copied completely. Make or fetch it again");
}

class GzipStream final : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> source, std::string name) : input_(std::move(source)), name_(std::move(name)) {
    constexpr int kGzipOnly = 15 + 16;
    if (::inflateInit2(&state_, kGzipOnly) != Z_OK) run_error(name_, ": zlib cannot start");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(char* to, size_t size) override {
    const auto room = static_cast<uInt>(std::min<size_t>(size, kInputBytes * 64));
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = room;
    while (state_.avail_out == room && (in_member_ || next_member())) inflate_some();
    return room - state_.avail_out;
  }

 private:
  void inflate_some() {
    const std::string_view unused = input_.unused();
    if (unused.empty()) cut_off(name_, "gzip");
    // zlib does not change what it reads, whatever its type says.
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(unused.data()));
    state_.avail_in = static_cast<uInt>(unused.size());
    const int status = ::inflate(&state_, Z_NO_FLUSH);
    input_.use(unused.size() - state_.avail_in);
    if (status == Z_STREAM_END) {
      in_member_ = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      input_error(name_, ": the gzip data is damaged near byte ", input_.offset(), " (",
                  state_.msg != nullptr ? state_.msg : "zlib gives no reason", "). Make or fetch the file again");
    }
  }

  /// Whether another member begins behind the last one.
  bool next_member() {
    for (;;) {
      const std::string_view unused = input_.unused();
      if (unused.empty()) return false;
      const size_t zeros = std::min(unused.find_first_not_of('\0'), unused.size());
      input_.use(zeros);
      padded_ = padded_ || zeros > 0;
      if (zeros == unused.size()) continue;
      if (padded_ || unused[0] != '\x1F') {
        input_error(name_, ": something that is not gzip data follows it at byte ", input_.offset(),
                    ". Cut it off, or make or fetch the file again");
      }
      ::inflateReset(&state_);
      in_member_ = true;
      return true;
    }
  }

  Input input_;
  std::string name_;
  z_stream state_{};
  bool in_member_ = true;
  bool padded_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  ZstdStream(std::unique_ptr<ByteStream> source, std::string name)
      : input_(std::move(source)), name_(std::move(name)), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) run_error(name_, ": Zstandard cannot start");
  }
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  size_t read(char* to, size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      const std::string_view unused = input_.unused();
      // A full output buffer may have left decompressed bytes behind, also when the input has ended.
      if (unused.empty() && !pending_) {
        if (in_frame_) cut_off(name_, "Zstandard");
        break;
      }
      ZSTD_inBuffer in{unused.data(), unused.size(), 0};
      const size_t left = ::ZSTD_decompressStream(state_, &out, &in);
      input_.use(in.pos);
      if (::ZSTD_isError(left)) fail(left);
      in_frame_ = left != 0;
      pending_ = in_frame_ && out.pos == out.size;
    }
    return out.pos;
  }

 private:
  [[noreturn]] void fail(size_t status) const {
    if (::ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge) {
      input_error(name_, ": the Zstandard data needs a window of more than 128 MiB; compress it again without --long");
    }
    input_error(name_, ": the Zstandard data is damaged, or something else follows it, near byte ", input_.offset(),
                " (", ::ZSTD_getErrorName(status), "). Make or fetch the file again");
  }

  Input input_;
  std::string name_;
  ZSTD_DStream* state_;
  bool in_frame_ = true;  // a file without any frame is cut off as well
  bool pending_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> gunzip(std::unique_ptr<ByteStream> source, std::string name) {
  return std::make_unique<GzipStream>(std::move(source), std::move(name));
}

std::unique_ptr<ByteStream> unzstd(std::unique_ptr<ByteStream> source, std::string name) {
  return std::make_unique<ZstdStream>(std::move(source), std::move(name));
}

}  // namespace asterism::data
