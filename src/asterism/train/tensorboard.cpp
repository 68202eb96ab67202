#include "asterism/train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdio>

#include "asterism/core/error.h"

namespace asterism::train {
namespace fs = std::filesystem;

namespace {

// Field numbers of event.proto and summary.proto.
namespace event_field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary_field {
constexpr uint32_t kValue = 1, kTag = 1, kSimpleValue = 2;
}
constexpr uint32_t kSessionStatus = 1, kSessionStart = 1;

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}

/// TFRecord stores CRCs rotated and shifted, because a CRC over bytes that contain their own CRC is a constant.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

template <typename Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(Unsigned); ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_tag(std::string& out, uint32_t field, WireType type) {
  append_varint(out, (field << 3) | static_cast<uint32_t>(type));
}

void append_varint_field(std::string& out, uint32_t field, uint64_t value) {
  append_tag(out, field, WireType::kVarint);
  append_varint(out, value);
}

void append_double_field(std::string& out, uint32_t field, double value) {
  append_tag(out, field, WireType::kFixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(value));
}

void append_float_field(std::string& out, uint32_t field, float value) {
  append_tag(out, field, WireType::kFixed32);
  append_little_endian(out, std::bit_cast<uint32_t>(value));
}

void append_bytes_field(std::string& out, uint32_t field, std::string_view bytes) {
  append_tag(out, field, WireType::kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_double_field(event, event_field::kWallTime, std::chrono::duration<double>(now).count());
  return event;
}

fs::path event_file(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) run_error(folder.string(), ": cannot create the folder: ", failure.message());
  char host[256] = "localhost";
  if (::gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') std::snprintf(host, sizeof(host), "localhost");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // TensorBoard reads the files of a folder in the order of their names: the time comes first.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto nanoseconds = (std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) % 1'000'000'000;
  return folder / text("events.out.tfevents.", seconds, ".", host, ".", ::getpid(), ".", nanoseconds);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string tfrecord_frame(std::string_view record) {
  std::string frame;
  append_little_endian(frame, static_cast<uint64_t>(record.size()));
  append_little_endian(frame, masked_crc(frame));
  frame.append(record);
  append_little_endian(frame, masked_crc(record));
  return frame;
}

TensorboardWriter::TensorboardWriter(const fs::path& folder, int64_t last_step)
    : file_(event_file(folder)), writer_(file_) {
  std::string version = event_now();
  append_bytes_field(version, event_field::kFileVersion, "brain.Event:2");
  // The start of a session drops what older files of the folder hold for its step and later ones.
  std::string status;
  append_varint_field(status, kSessionStatus, kSessionStart);
  std::string start = event_now();
  append_varint_field(start, event_field::kStep, static_cast<uint64_t>(last_step + 1));
  append_bytes_field(start, event_field::kSessionLog, status);
  writer_.write(tfrecord_frame(version) + tfrecord_frame(start));
}

void TensorboardWriter::add(int64_t step, const nlohmann::ordered_json& row) {
  std::string summary;
  for (const auto& [key, value] : row.items()) {
    if (!value.is_number() || key == "step") continue;
    std::string entry;
    append_bytes_field(entry, summary_field::kTag, key);
    append_float_field(entry, summary_field::kSimpleValue, value.get<float>());
    append_bytes_field(summary, summary_field::kValue, entry);
  }
  std::string event = event_now();
  append_varint_field(event, event_field::kStep, static_cast<uint64_t>(step));
  append_bytes_field(event, event_field::kSummary, summary);
  writer_.write(tfrecord_frame(event));
}

}  // namespace asterism::train
