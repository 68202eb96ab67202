#include "asterism/cli/sample_rendering.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"

namespace asterism::cli {
namespace {

const data::Tokenizer& tokenizer() {
  static const data::Tokenizer instance =
      data::Tokenizer::parse(data::small_tokenizer({{"a", "b"}}).dump(), "tokenizer.json");
  return instance;
}

/// The tokens of a text with their weights.
data::Sample sample(const std::string& text, const std::vector<float>& weights) {
  data::Sample result;
  result.ids = tokenizer().encode(text);
  result.weights = weights;
  EXPECT_EQ(result.ids.size(), weights.size());
  return result;
}

std::string rendered(const std::string& text, const std::vector<float>& weights, RenderStyle style = {}) {
  return render_sample(sample(text, weights), tokenizer(), style);
}

TEST(SampleRendering, TrainedRunsStandInBrackets) {
  EXPECT_EQ(rendered("xyz", {0, 1, 1}), "x⟦yz⟧");
  EXPECT_EQ(rendered("xyzx", {0, 1, 0, 1}), "x⟦y⟧z⟦x⟧");
  EXPECT_EQ(rendered("xyz", {0, 0.5, 1}), "x⟦0.5:y⟧⟦z⟧");
  EXPECT_EQ(rendered("xy", {1, 1}), "x⟦y⟧");  // nothing predicts the first token of a document
  EXPECT_EQ(rendered("", {}), "");
}

TEST(SampleRendering, ColoursReplaceBrackets) {
  EXPECT_EQ(rendered("xyz", {0, 1, 0.5}, {.color = true}), "x\x1b[32my\x1b[0m\x1b[33mz\x1b[0m");
}

TEST(SampleRendering, BordersStandBetweenTokens) {
  EXPECT_EQ(rendered("xabyz", {0, 0, 1, 1}, {.token_borders = true}), "x│ab│⟦y│z⟧");
  EXPECT_EQ(rendered("xyz", {0, 1, 1}, {.color = true, .token_borders = true}),
            "x\x1b[0m\x1b[2m│\x1b[0m\x1b[32my\x1b[0m\x1b[2m│\x1b[0m\x1b[32mz\x1b[0m");
}

TEST(SampleRendering, CharactersCutByTokensAreShownWhole) {
  EXPECT_EQ(rendered("é", {0, 0}), "é");
  EXPECT_EQ(rendered("é", {0, 0}, {.token_borders = true}), "\\xc3│\\xa9");
  EXPECT_EQ(rendered("é", {0, 1}), "\\xc3⟦\\xa9⟧");
}

TEST(SampleRendering, TextCannotSteerTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31m\a\r\x7f\tb\n"), "a\\x1b[31m\\x07\\x0d\\x7f\tb\n");
  EXPECT_EQ(printable("\xC2\x9B"
                      "0m 你 \xFF"),
            "\\xc2\\x9b0m 你 \\xff");
  EXPECT_EQ(printable(std::string(1, '\0')), "\\x00");
}

TEST(SampleRendering, IdsWithoutATokenAreShownAsNumbers) {
  data::Sample strange;
  strange.ids = {'x', 9999};
  strange.weights = {0, 1};
  EXPECT_EQ(render_sample(strange, tokenizer(), {}), "x⟦<9999>⟧");
}

}  // namespace
}  // namespace asterism::cli
