#include "asterism/train/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::train {
namespace {

using testing::TemporaryFolder;

// An independent reading of the format: bit by bit instead of by table, messages into maps.

uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return crc ^ 0xFFFFFFFFu;
}

uint32_t slow_masked(std::string_view bytes) {
  const uint32_t crc = slow_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename T>
T at_offset(std::string_view bytes, size_t offset) {
  T value;
  if (offset + sizeof(T) > bytes.size()) throw std::runtime_error("the file ends too early");
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::vector<std::string> read_records(std::string_view content) {
  std::vector<std::string> records;
  for (size_t at = 0; at < content.size();) {
    const auto length = at_offset<uint64_t>(content, at);
    EXPECT_EQ(at_offset<uint32_t>(content, at + 8), slow_masked(content.substr(at, 8)));
    const std::string_view record = content.substr(at + 12, length);
    EXPECT_EQ(at_offset<uint32_t>(content, at + 12 + length), slow_masked(record));
    records.emplace_back(record);
    at += 16 + length;
  }
  return records;
}

uint64_t read_varint(std::string_view bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

/// Field number -> raw values: of a varint the number in eight bytes.
std::multimap<uint64_t, std::string> read_message(std::string_view bytes) {
  std::multimap<uint64_t, std::string> fields;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t tag = read_varint(bytes, at);
    size_t length = 0;
    if ((tag & 7) == 0) {
      const uint64_t number = read_varint(bytes, at);
      fields.emplace(tag >> 3, std::string(reinterpret_cast<const char*>(&number), 8));
      continue;
    }
    if ((tag & 7) == 1) length = 8;
    if ((tag & 7) == 2) length = read_varint(bytes, at);
    if ((tag & 7) == 5) length = 4;
    fields.emplace(tag >> 3, bytes.substr(at, length));
    at += length;
  }
  return fields;
}

std::string field(const std::multimap<uint64_t, std::string>& message, uint64_t number) {
  EXPECT_EQ(message.count(number), 1u) << "field " << number;
  const auto found = message.find(number);
  return found == message.end() ? std::string(8, '\0') : found->second;
}

TEST(Tensorboard, ChecksumsAreCrc32c) {
  // Check value of the CRC catalogue, and the vectors of RFC 3720 B.4.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Tensorboard, FramesHoldLengthAndMaskedChecksums) {
  EXPECT_EQ(read_records(tfrecord_frame("abc") + tfrecord_frame("")), (std::vector<std::string>{"abc", ""}));
}

TEST(Tensorboard, FileBeginsWithVersionAndStartOfTheSession) {
  const TemporaryFolder folder;
  const TensorboardWriter writer(folder / "board", 41);
  const auto records = read_records(read_text(writer.file()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(field(read_message(records[0]), 3), "brain.Event:2");
  const auto start = read_message(records[1]);
  EXPECT_EQ(at_offset<int64_t>(field(start, 2), 0), 42);
  EXPECT_EQ(at_offset<int64_t>(field(read_message(field(start, 7)), 1), 0), 1);
}

TEST(Tensorboard, EveryNumberOfARowIsAScalar) {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path(), 0);
  writer.add(300, {{"step", 300}, {"loss", 2.5}, {"tokens", 4096}, {"note", "text"}});
  const auto records = read_records(read_text(writer.file()));
  ASSERT_EQ(records.size(), 3u);
  const auto event = read_message(records[2]);
  EXPECT_GT(at_offset<double>(field(event, 1), 0), 1.6e9);
  EXPECT_EQ(at_offset<int64_t>(field(event, 2), 0), 300);
  const auto summary = read_message(field(event, 5));
  std::map<std::string, float> scalars;
  for (const auto& [number, bytes] : summary) {
    EXPECT_EQ(number, 1u);
    const auto value = read_message(bytes);
    scalars[field(value, 1)] = at_offset<float>(field(value, 2), 0);
  }
  EXPECT_EQ(scalars, (std::map<std::string, float>{{"loss", 2.5f}, {"tokens", 4096.0f}}));
}

TEST(Tensorboard, FileIsNamedSoThatTensorboardFindsIt) {
  const TemporaryFolder folder;
  const TensorboardWriter first(folder.path(), 0), second(folder.path(), 0);
  EXPECT_TRUE(first.file().filename().string().starts_with("events.out.tfevents."));
  EXPECT_NE(first.file(), second.file());
}

TEST(Tensorboard, ReportsAFolderThatCannotBeCreated) {
  const TemporaryFolder folder;
  folder.write("board", "a file in the way");
  EXPECT_THROW(TensorboardWriter(folder / "board", 0), RunError);
}

}  // namespace
}  // namespace asterism::train
