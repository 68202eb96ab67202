#include "asterism/core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace asterism {
namespace {

uint32_t of(const std::string& text) {
  return crc32c(text.data(), text.size());
}

TEST(Crc32c, AgreesWithTheStandard) {
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xE3069283U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(of(std::string(32, '\xFF')), 0x62A8AB43U);
}

TEST(Crc32c, PiecesInARowGiveTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 37 + i / 7);
  for (const size_t cut : {0U, 1U, 7U, 8U, 500U, 999U, 1000U}) {
    const uint32_t first = crc32c(text.data(), cut), second = of(text.substr(cut));
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, first), of(text)) << cut;
    EXPECT_EQ(crc32c_combine(first, second, text.size() - cut), of(text)) << cut;
  }
}

TEST(Crc32c, OneFlippedBitShows) {
  std::string text(4096, 'x');
  const uint32_t before = of(text);
  text[4000] ^= 4;
  EXPECT_NE(of(text), before);
}

}  // namespace
}  // namespace asterism
