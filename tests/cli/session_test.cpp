#include "asterism/cli/session.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "asterism/ops/matmul.h"
#include "tests/cli/training_files.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

/// A folder with models/with (a tokenizer of 256 bytes) and models/without.
class SessionTokenizer : public ::testing::Test {
 protected:
  SessionTokenizer() {
    std::filesystem::create_directory(folder_ / "with");
    std::filesystem::create_directory(folder_ / "without");
    folder_.write("with/tokenizer.json", data::small_tokenizer({}).dump());
    folder_.write("with/tokenizer_config.json", "{}");
  }
  TemporaryFolder folder_;
};

TEST_F(SessionTokenizer, IsThatOfThePathOrOfTheModel) {
  EXPECT_EQ(load_tokenizer("", folder_ / "without", 256), nullptr);
  EXPECT_EQ(load_tokenizer("", folder_ / "with", 256)->vocab_size(), 256);
  EXPECT_EQ(load_tokenizer(folder_ / "with", folder_ / "without", 300)->vocab_size(), 256);
  EXPECT_EQ(load_tokenizer(folder_ / "with/tokenizer.json", folder_ / "without", 300)->vocab_size(), 256);
}

TEST_F(SessionTokenizer, MustExistWhenNamedAndFitTheVocabulary) {
  EXPECT_NE(error_of<InputError>([&] { load_tokenizer(folder_ / "without", folder_ / "with", 256); }).find("without"),
            std::string::npos);
  const std::string error = error_of<InputError>([&] { load_tokenizer("", folder_ / "with", 255); });
  EXPECT_NE(error.find("ids up to 255, the model's vocabulary has 255 entries"), std::string::npos) << error;
}

TEST_F(SessionTokenizer, IsCopiedWithItsSettings) {
  const std::string tokenizer = read_text(folder_ / "with/tokenizer.json");
  const std::filesystem::path target = folder_ / "target";
  std::filesystem::create_directory(target);
  copy_tokenizer("", folder_ / "without", target);
  EXPECT_TRUE(std::filesystem::is_empty(target));
  copy_tokenizer(folder_ / "with", folder_ / "without", target);
  EXPECT_EQ(read_text(target / "tokenizer.json"), tokenizer);
  EXPECT_EQ(read_text(target / "tokenizer_config.json"), "{}");
  std::filesystem::rename(folder_ / "with/tokenizer.json", folder_ / "with/renamed.json");
  std::filesystem::remove(target / "tokenizer.json");
  std::filesystem::remove(target / "tokenizer_config.json");
  copy_tokenizer(folder_ / "with/renamed.json", folder_ / "without", target);
  EXPECT_EQ(read_text(target / "tokenizer.json"), tokenizer);
  EXPECT_NE(error_of<RunError>([&] { copy_tokenizer("", target, folder_ / "absent"); }).find("absent/tokenizer.json"),
            std::string::npos);
}

TEST(Session, ComputeTypeFollowsTheRecipeThenTheProcessor) {
  EXPECT_EQ(compute_type(train::Compute::kFp32), at::kFloat);
  EXPECT_EQ(compute_type(train::Compute::kBf16), at::kBFloat16);
  EXPECT_EQ(compute_type(train::Compute::kAuto) == at::kBFloat16, ops::has_native_bf16());
}

TEST(Session, RowOptionsFollowTheDataSection) {
  const data::RowOptions standard = row_options({}, nullptr, 97, "nowhere");
  EXPECT_EQ(standard.vocab_size, 97);
  EXPECT_FALSE(standard.tokenize);
  EXPECT_EQ(standard.chat.variant, data::ChatVariant::V4_0731);
  EXPECT_TRUE(standard.chat.drop_thinking);
  EXPECT_EQ(standard.loss.history, data::History::Auto);
  EXPECT_EQ(standard.thinking, data::Thinking::Auto);
  EXPECT_EQ(standard.bad_rows, data::BadRows::Error);

  train::DataSection section;
  section.variant = "v4-preview";
  section.thinking = "thinking";
  section.reasoning_effort = "max";
  section.drop_thinking = false;
  section.history = "split";
  section.bad_rows = "skip";
  section.special_in_content = "as_text";
  section.reject_unframeable = true;
  const data::RowOptions changed = row_options(section, nullptr, 97, "nowhere");
  EXPECT_EQ(changed.chat.variant, data::ChatVariant::V4Preview);
  EXPECT_EQ(changed.chat.reasoning_effort, (data::ReasoningEffort{data::EffortLevel::Max}));
  EXPECT_FALSE(changed.chat.drop_thinking);
  EXPECT_EQ(changed.chat.special_in_content, data::SpecialInContent::AsText);
  EXPECT_TRUE(changed.chat.reject_unframeable);
  EXPECT_EQ(changed.loss.history, data::History::Split);
  EXPECT_EQ(changed.thinking, data::Thinking::Thinking);
  EXPECT_EQ(changed.bad_rows, data::BadRows::Skip);
  section.thinking = "chat";
  EXPECT_EQ(row_options(section, nullptr, 97, "nowhere").thinking, data::Thinking::Chat);
}

TEST_F(SessionTokenizer, AutomaticVariantIsThatOfTheCheckpointAndLogged) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(variant_named("auto", folder_ / "without", nullptr), data::ChatVariant::V4_0731);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("v4-0731: the checkpoint names no version"),
            std::string::npos);
  folder_.write("with/chat_template.jinja", "<｜System｜>");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(variant_named("auto", folder_ / "with", nullptr), data::ChatVariant::V4_1);
  EXPECT_EQ(variant_named("v4-preview", folder_ / "with", nullptr), data::ChatVariant::V4Preview);
  const auto tokenizer = load_tokenizer("", folder_ / "with", 256);
  EXPECT_EQ(variant_named("v4.1", folder_ / "with", tokenizer.get()), data::ChatVariant::V4_1);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has no token <｜System｜>"), std::string::npos);
}

TEST_F(SessionTokenizer, RowOptionsTokenizeWithTheEndOfEachToken) {
  const auto options = row_options({}, load_tokenizer("", folder_ / "with", 256), 256, folder_ / "with");
  std::vector<int64_t> ids;
  std::vector<size_t> ends = {7, 7, 7};
  options.tokenize("ab", {}, ids, ends);
  EXPECT_EQ(ids, (std::vector<int64_t>{'a', 'b'}));
  EXPECT_EQ(ends, (std::vector<size_t>{1, 2}));
}

TEST(Session, LoadsTheModelInTheAskedStorage) {
  const TrainingFiles files;
  EXPECT_EQ(load_model(files / "model", train::Storage::kAuto).weights.embed.scalar_type(), at::kFloat);
  EXPECT_EQ(load_model(files / "model", train::Storage::kBf16).weights.embed.scalar_type(), at::kBFloat16);
  EXPECT_NE(error_of<InputError>([&] { load_model(files / "absent", train::Storage::kAuto); }).find("absent"),
            std::string::npos);
}

TEST(Session, LoadDataReportsWhatWasSkippedAndLost) {
  const TemporaryFolder folder;
  const std::string rows = folder.write("rows.jsonl",
                                        "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2, 3, 4, 5]}\nno row\n"
                                        "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n");
  train::Recipe recipe;
  recipe.data.sequence_length = 4;
  recipe.data.overlong = "truncate";
  recipe.data.bad_rows = "skip";
  recipe.train.batch = 1;
  ::testing::internal::CaptureStderr();
  const auto data = load_data({rows}, recipe, row_options(recipe.data, nullptr, 97, "nowhere"), "train");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(data->report().tokens, 7);
  EXPECT_EQ(data->report().rows, 2);
  for (const char* part : {"train: 2 samples, 7 tokens, 5 of them trained, in 2 rows filled to 88 %",
                           "left out 1 samples without a token to train", "0 samples dropped and 1 cut",
                           "skipped 1 of 4 rows", "invalid_json: 1", "rows.jsonl:3"}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << "\n" << log;
  }
  recipe.data.overlong = "error";
  EXPECT_NE(error_of<InputError>([&] {
              load_data({rows}, recipe, row_options(recipe.data, nullptr, 97, "nowhere"), "train");
            }).find("rows.jsonl:2"),
            std::string::npos);
}

}  // namespace
}  // namespace asterism::cli
