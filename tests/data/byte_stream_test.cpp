#include "asterism/data/byte_stream.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

std::string rest_of(ByteStream& stream) {
  std::string all;
  char bytes[3];
  while (const size_t count = stream.read(bytes, sizeof bytes)) all.append(bytes, count);
  return all;
}

TEST(ByteStream, ContainersAreToldByTheirFirstBytes) {
  const test::TemporaryFolder folder;
  using namespace std::string_literals;
  const std::pair<std::string, Container> cases[] = {
      {"", Container::Plain},
      {"PAR", Container::Plain},
      {"{\"text\": 1}", Container::Plain},
      {gzipped("x"), Container::Gzip},
      {zstd_frame("x"), Container::Zstd},
      {"\x5A\x2A\x4D\x18\0\0\0\0"s, Container::Zstd},
      {"PAR1", Container::Parquet},
  };
  for (const auto& [content, expected] : cases) {
    EXPECT_EQ(container_of(folder.write("file", content)), expected) << content;
  }
  EXPECT_THROW(container_of(folder / "missing"), InputError);
}

TEST(ByteStream, PlainFilesAreReadFromAnyByte) {
  const test::TemporaryFolder folder;
  const auto stream = open_bytes(folder.write("file", "0123456789"), Container::Plain);
  EXPECT_TRUE(stream->seekable());
  EXPECT_EQ(rest_of(*stream), "0123456789");
  stream->seek(7);
  EXPECT_EQ(rest_of(*stream), "789");
  stream->seek(100);
  EXPECT_EQ(rest_of(*stream), "");
}

TEST(ByteStream, CompressedFilesAreReadInOrder) {
  const test::TemporaryFolder folder;
  for (const Container container : {Container::Gzip, Container::Zstd}) {
    const std::string content = container == Container::Gzip ? gzipped("0123456789") : zstd_frame("0123456789");
    const auto stream = open_bytes(folder.write("file", content), container);
    EXPECT_FALSE(stream->seekable());
    EXPECT_EQ(rest_of(*stream), "0123456789");
    EXPECT_THROW(stream->seek(0), RunError);
  }
}

}  // namespace
}  // namespace asterism::data
