#include "asterism/data/variant_detection.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"
#include "tests/support/temporary_folder.h"

namespace asterism::data {
namespace {

Tokenizer tokenizer_with(int id, const std::string& content) {
  nlohmann::json file = small_tokenizer({});
  file["added_tokens"].push_back(added_token(id, content));
  return Tokenizer::parse(file.dump(), "tokenizer.json");
}

class VariantDetection : public ::testing::Test {
 protected:
  VariantChoice detect(const Tokenizer* tokenizer = nullptr) const { return detect_variant(folder_.path(), tokenizer); }
  testing::TemporaryFolder folder_;
};

TEST_F(VariantDetection, NothingToGoByMeansTheStandard) {
  const Tokenizer tokenizer = tokenizer_with(128799, "<｜place▁holder▁no▁799｜>");
  folder_.write("chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(detect(&tokenizer).variant, ChatVariant::V4_0731);
  EXPECT_NE(detect().reason.find("standard"), std::string::npos);
}

TEST_F(VariantDetection, TheSystemTokenMeansTheNextVersion) {
  const Tokenizer tokenizer = tokenizer_with(128799, "<｜System｜>");
  EXPECT_EQ(detect(&tokenizer).variant, ChatVariant::V4_1);
  EXPECT_NE(detect(&tokenizer).reason.find("<｜System｜>"), std::string::npos);
  const Tokenizer other = tokenizer_with(5000, "<｜System｜>");
  EXPECT_EQ(detect(&other).variant, ChatVariant::V4_0731);
}

TEST_F(VariantDetection, TheTemplateMeansTheNextVersion) {
  folder_.write("chat_template.jinja", "<｜System｜>{{ messages }}");
  EXPECT_EQ(detect().variant, ChatVariant::V4_1);
}

TEST(VariantOfDigest, OfficialEncodersAreKnown) {
  EXPECT_EQ(variant_of_digest("bdbd57c132a1b3725042323d02b98b9d1df28e5f388f134399555d041f5055e0"),
            ChatVariant::V4Preview);
  EXPECT_EQ(variant_of_digest("abc0d26120250dda0ae077dc64aa28836026e61e970854aaeb792445e6a0dde6"),
            ChatVariant::V4_0731);
  EXPECT_EQ(variant_of_digest("502bdaec8a3fd88ebc24c4721a7038fbe42f2063c664638127056107920035c1"), ChatVariant::V4_1);
  EXPECT_EQ(variant_of_digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), std::nullopt);
}

TEST_F(VariantDetection, AnEncoderOfAnotherEditionCountsByItsName) {
  std::filesystem::create_directories(folder_ / "encoding");
  folder_.write("encoding/encoding.py", "# some edition\n");
  EXPECT_EQ(detect().variant, ChatVariant::V4_1);
  folder_.write("encoding/encoding_dsv4.py", "# some edition\n");
  const Tokenizer tokenizer = tokenizer_with(128799, "<｜System｜>");
  EXPECT_EQ(detect(&tokenizer).variant, ChatVariant::V4_0731);
  EXPECT_NE(detect().reason.find("unknown edition"), std::string::npos);
}

}  // namespace
}  // namespace asterism::data
