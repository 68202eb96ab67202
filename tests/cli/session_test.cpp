#include "asterism/cli/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "asterism/core/error.h"
#include "asterism/ops/matmul.h"
#include "tests/cli/training_files.h"
#include "tests/data/numbered_rows.h"

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

TEST(Session, AnEffortThatTheVariantDoesNotHaveIsAFaultOfTheRecipeNotOfEveryRow) {
  train::DataSection section;
  section.reasoning_effort = "60";
  section.variant = "v4.1";
  EXPECT_EQ(row_options(section, nullptr, 97, "nowhere").chat.reasoning_effort,
            (data::ReasoningEffort{data::EffortLevel::Number, 60}));
  for (const auto& [variant, effort] : {std::pair("v4-0731", "60"), std::pair("v4-preview", "low")}) {
    section.variant = variant;
    section.reasoning_effort = effort;
    const std::string message = error_of<InputError>([&] { row_options(section, nullptr, 97, "nowhere"); });
    EXPECT_NE(message.find("data.reasoning_effort: "), std::string::npos) << message;
    EXPECT_NE(message.find(std::string("the encoding is ") + variant), std::string::npos) << message;
  }
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

TEST(Session, PacksTheModelWhenAskedAndWarnsOfWhatItLost) {
  const TrainingFiles files;
  ::testing::internal::CaptureStderr();
  const model::Model model = load_model(files / "model", train::Storage::kFp8);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(model.weights.layers[1].moe.moe.gate_up.weight.storage(), "fp8");
  EXPECT_EQ(model.weights.layers[1].attention.attention.q_b_proj.weight.storage(), "fp8");
  EXPECT_EQ(model.weights.layers[1].moe.moe.gate.weight.storage(), "fp32");
  EXPECT_NE(log.find("model.storage: fp8 changed "), std::string::npos) << log;
  EXPECT_NE(log.find(" of their size"), std::string::npos) << log;
  // Its experts are 16 wide, and FP4 has a scale per 32 columns.
  const std::string refused = error_of<InputError>([&] { load_model(files / "model", train::Storage::kFp4); });
  EXPECT_NE(refused.find("use model.storage: fp8 or auto"), std::string::npos) << refused;
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
  const auto data = load_data({{rows}}, recipe, row_options(recipe.data, nullptr, 97, "nowhere"), "train");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(data->report().tokens, 7);
  EXPECT_EQ(data->rows_per_epoch(0), 2);
  for (const char* part : {"train: 2 samples, 7 tokens, 5 of them trained, in 2 rows filled to 88 %",
                           "left out 1 samples without a token to train", "0 samples dropped and 1 cut",
                           "skipped 1 of 4 rows", "invalid_json: 1", "rows.jsonl:3"}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << "\n" << log;
  }
  recipe.data.overlong = "error";
  EXPECT_NE(error_of<InputError>([&] {
              load_data({{rows}}, recipe, row_options(recipe.data, nullptr, 97, "nowhere"), "train");
            }).find("rows.jsonl:2"),
            std::string::npos);
}

/// A recipe with 10,000 rows, one of them broken, whose cache is in the folder.
class SessionData : public SessionTokenizer {
 protected:
  SessionData() {
    rows_ = {{folder_.write("rows.jsonl", data::numbered_rows(0, 10'000) + "broken\n")}};
    recipe_.output = folder_ / "runs";
    recipe_.data.bad_rows = "skip";
    recipe_.train.batch = 1;
  }

  std::unique_ptr<data::DataSet> load(const data::Tokenizer* tokenizer = nullptr) {
    const data::RowOptions options = row_options(recipe_.data, nullptr, 10'000, "nowhere");
    ::testing::internal::CaptureStderr();
    auto data = load_data(rows_, recipe_, options, "train", index_place(recipe_, options, tokenizer));
    log_ = ::testing::internal::GetCapturedStderr();
    return data;
  }
  bool from_cache() const { return log_.find("known from an earlier start") != std::string::npos; }

  std::vector<data::DataSource> rows_;
  train::Recipe recipe_;
  std::string log_;
};

TEST_F(SessionData, TheSecondStartHitsTheCacheAndSaysSo) {
  load();
  EXPECT_NE(log_.find("train: 10001 rows in 1 file, prepared"), std::string::npos) << log_;
  const auto second = load();
  EXPECT_TRUE(from_cache()) << log_;
  EXPECT_NE(log_.find("invalid_json: 1"), std::string::npos) << log_;  // what was skipped is said every time
  EXPECT_EQ(second->report().samples, 10'000);
}

TEST_F(SessionData, WhatDecidesAboutTokensDecidesAboutTheCache) {
  load();
  // Order, packing and threads do not.
  recipe_.seed = 9;
  recipe_.data.shuffle = recipe_.data.packing = false;
  recipe_.data.workers = 0;
  rows_[0].weight = 2.0;
  load();
  EXPECT_TRUE(from_cache()) << log_;
  const auto changes = std::to_array<std::function<void(train::DataSection&)>>({
      [](auto& data) { data.sequence_length = 64; },
      [](auto& data) { data.history = "all"; },
      [](auto& data) { data.variant = "v4-preview"; },
      [](auto& data) { data.without_targets = "error"; },
  });
  for (const auto& change : changes) {
    change(recipe_.data);
    load();
    EXPECT_FALSE(from_cache()) << log_;
  }
  const auto tokenizer = load_tokenizer("", folder_ / "with", 256);
  load(tokenizer.get());
  EXPECT_FALSE(from_cache()) << log_;
}

TEST_F(SessionData, AStaleIndexIsExplained) {
  load();
  folder_.write("rows.jsonl", data::numbered_rows(0, 20));
  EXPECT_EQ(load()->report().samples, 20);
  EXPECT_NE(log_.find("rows.jsonl was changed since; made anew"), std::string::npos) << log_;
}

TEST_F(SessionData, RejectedRowsAreCollected) {
  const auto data = load();
  const std::filesystem::path target = folder_ / "rejected_rows.jsonl";
  write_rejected_rows({data.get(), nullptr, data.get()}, target);
  const std::string lines = read_text(target);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_NE(lines.find("\"line\":10001,\"category\":\"invalid_json\""), std::string::npos) << lines;
  write_rejected_rows({nullptr}, target);
  EXPECT_FALSE(std::filesystem::exists(target));
}

}  // namespace
}  // namespace asterism::cli
