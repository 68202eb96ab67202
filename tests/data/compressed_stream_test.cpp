#include "asterism/data/compressed_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/support/temporary_folder.h"

namespace asterism::data {
namespace {

using namespace std::string_literals;

/// Gives at most `piece` bytes at a time.
class Pieces final : public ByteStream {
 public:
  Pieces(std::string bytes, size_t piece) : bytes_(std::move(bytes)), piece_(piece) {}
  size_t read(char* to, size_t size) override {
    const size_t count = std::min({size, piece_, bytes_.size() - at_});
    bytes_.copy(to, count, at_);
    at_ += count;
    return count;
  }

 private:
  std::string bytes_;
  size_t piece_, at_ = 0;
};

using Opener = std::unique_ptr<ByteStream> (*)(std::unique_ptr<ByteStream>, std::string);

std::string decompressed(Opener open, const std::string& bytes, size_t piece = 1 << 20, size_t read = 1 << 16) {
  const auto stream = open(std::make_unique<Pieces>(bytes, piece), "f");
  std::string all, buffer(read, '\0');
  while (const size_t count = stream->read(buffer.data(), buffer.size())) all.append(buffer, 0, count);
  EXPECT_EQ(stream->read(buffer.data(), buffer.size()), 0u);
  return all;
}

std::string failure(Opener open, const std::string& bytes) {
  return testing::error_of<InputError>([&] { decompressed(open, bytes); });
}

std::string compressible(size_t size) {
  std::string text;
  for (size_t i = 0; text.size() < size; ++i) text += "row " + std::to_string(i * i % 977) + "\n";
  return text;
}

struct Format {
  Opener open;
  std::function<std::string(std::string_view)> compress;
};
const Format kFormats[] = {{gunzip, gzipped}, {unzstd, [](std::string_view text) { return zstd_frame(text); }}};

TEST(CompressedStream, TextDoesNotDependOnPieces) {
  const std::string text = compressible(300000);
  for (const Format& format : kFormats) {
    const std::string bytes = format.compress(text);
    EXPECT_EQ(decompressed(format.open, bytes), text);
    EXPECT_EQ(decompressed(format.open, bytes, 1), text);
    EXPECT_EQ(decompressed(format.open, bytes, 7, 3), text);
    // A buffer that the text fills exactly leaves the decompressor nothing but the end to report.
    EXPECT_EQ(decompressed(format.open, bytes, 1 << 20, text.size()), text);
  }
}

TEST(CompressedStream, MembersFollowOneAnother) {
  for (const Format& format : kFormats) {
    const std::string bytes = format.compress("one\n") + format.compress("") + format.compress("two\n");
    EXPECT_EQ(decompressed(format.open, bytes), "one\ntwo\n");
    EXPECT_EQ(decompressed(format.open, bytes, 1, 1), "one\ntwo\n");
  }
}

TEST(CompressedStream, EveryCutIsNoticed) {
  for (const Format& format : kFormats) {
    const std::string bytes = format.compress(compressible(500));
    for (size_t length = 0; length < bytes.size(); ++length) {
      const std::string message = failure(format.open, bytes.substr(0, length));
      EXPECT_NE(message.find("ends in the middle"), std::string::npos) << length << ": " << message;
    }
  }
}

TEST(CompressedStream, DamageIsNoticedByTheChecksum) {
  for (const Format& format : kFormats) {
    std::string bytes = format.compress(compressible(5000));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
    EXPECT_NE(failure(format.open, bytes), "");
  }
}

TEST(CompressedStream, PaddingIsIgnoredAndOtherBytesAreNot) {
  const std::string member = gzipped("text");
  EXPECT_EQ(decompressed(gunzip, member + std::string(5000, '\0')), "text");
  for (const std::string& garbage : {"x"s, "\0x"s, "{\"text\": 1}\n"s, "\0"s + member}) {
    EXPECT_NE(failure(gunzip, member + garbage).find("not gzip data"), std::string::npos) << garbage;
    EXPECT_NE(failure(unzstd, zstd_frame("text") + "garbage"), "");
  }
}

TEST(CompressedStream, FramesToBeSkippedAreSkipped) {
  const std::string skipped = "\x50\x2A\x4D\x18\x03\0\0\0abc"s;
  EXPECT_EQ(decompressed(unzstd, skipped + zstd_frame("text") + skipped), "text");
}

TEST(CompressedStream, ALargeWindowIsRefusedByName) {
  const std::string message = failure(unzstd, zstd_frame(compressible(1000), 28));
  EXPECT_NE(message.find("--long"), std::string::npos) << message;
  EXPECT_EQ(decompressed(unzstd, zstd_frame("text", 27)), "text");
}

}  // namespace
}  // namespace asterism::data
