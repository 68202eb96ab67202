#include "asterism/data/byte_alphabet.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(ByteAlphabet, EveryByteComesBack) {
  std::string all, spelled;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
    spelled += byte_character(static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(bytes_of_characters(spelled), all);
}

TEST(ByteAlphabet, SpellsTheKnownExamples) {
  EXPECT_EQ(byte_character(' '), "Ġ");
  EXPECT_EQ(byte_character('\n'), "Ċ");
  EXPECT_EQ(byte_character('a'), "a");
  EXPECT_EQ(byte_character(0xAD), "Ń");  // the last substitute
  EXPECT_EQ(byte_character(0xE9), "é");
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  EXPECT_EQ(bytes_of_characters("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_characters("中"), std::nullopt);
}

}  // namespace
}  // namespace asterism::data
