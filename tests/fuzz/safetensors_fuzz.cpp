#include <gtest/gtest.h>

#include "asterism/core/file.h"
#include "asterism/core/memory.h"
#include "tests/fuzz/lying_files.h"
#include "tests/support/temporary_folder.h"

namespace asterism::fuzz {
namespace {

using checkpoint::Source;
using testing::TemporaryFolder;

/// Opens a file and reads all of it.
bool file_is_accepted(const TemporaryFolder& folder, const std::string& bytes) {
  const auto path = folder.write("a.safetensors", bytes);
  return is_accepted(path, [&] { expect_inside(Source::of_file(path)); });
}

TEST(Fuzz, Safetensors) {
  const TemporaryFolder folder;
  int accepted = 0, refused = 0;
  for_each_input("safetensors", 4000, [&](Dice& dice) {
    const LyingFile file = valid_file(dice);
    const bool has_bool = file.bytes().find("BOOL") != std::string::npos;  // not every byte is one
    ASSERT_TRUE(has_bool || file_is_accepted(folder, file.bytes())) << file.bytes();
    ++(file_is_accepted(folder, lying_bytes(dice, file)) ? accepted : refused);
  });
  EXPECT_GT(accepted, refused / 10) << "some lies must leave a file valid, or the files are not what they seem";
  EXPECT_GT(refused, accepted / 10);
}

// What a megabyte of header may hold at worst.
TEST(Fuzz, HeadersOfAMegabyteTakeLittleTimeAndMemory) {
  const TemporaryFolder folder;
  const auto header = [](const std::string& text) {
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  };
  const auto repeated = [](std::string text, const std::string& unit, const std::string& end) {
    while (text.size() < 1'000'000) text += unit;
    return text + end;
  };
  std::string tensors = "{", names = "{";
  for (int i = 0; tensors.size() < 1'000'000; ++i) {
    tensors += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    names += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  }
  [[maybe_unused]] const uint64_t before = peak_resident_bytes();
  EXPECT_TRUE(file_is_accepted(folder, header(tensors + "}")));
  for (const std::string& text :
       {names + "}", repeated("", "[", ""), repeated("{\"a\":", "[", ""), repeated("", "{\"a\":", ""),
        repeated("{\"a\":[", "1,", "1]}"), repeated("{\"a\":[", "[],", "1]}"), repeated("{\"a\":\"", "x", "\"}"),
        repeated("{\"", "x", "\":{}}"), repeated("{\"a\":", "9", "}"), repeated("{\"a\":{\"shape\":[1", ",1", "]}}"),
        repeated("{\"__metadata__\":{\"a\":\"", "\\u0000", "\"}}"), repeated("", " ", "{}")}) {
    SCOPED_TRACE(text.substr(0, 20));
    EXPECT_FALSE(file_is_accepted(folder, header(text + "?")));
    const bool is_empty = text.back() == '}' && (text.front() == ' ' || text.find("__meta") != std::string::npos);
    EXPECT_EQ(file_is_accepted(folder, header(text)), is_empty);
  }
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(peak_resident_bytes() - before, 200'000'000U) << "of a megabyte each";
#endif
}

}  // namespace
}  // namespace asterism::fuzz
