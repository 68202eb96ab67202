#include "asterism/data/inspection.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

RowOptions row_options() {
  RowOptions options;
  options.tokenize = test::tokenize_bytes;
  options.vocab_size = 256;
  return options;
}

DataSummary inspect(const std::vector<std::filesystem::path>& files, int64_t workers = 0) {
  return inspect_data(files, {.rows = row_options(), .workers = workers, .progress = {}});
}

std::string text_row(const std::string& text) {
  return "{\"text\": \"" + text + "\"}\n";
}

TEST(Inspection, RowsTokensAndProblemsAreCounted) {
  const test::TemporaryFolder folder;
  const auto a = folder.write("a.jsonl", text_row("abc") + "{bad\n" + text_row("abcdef") + "{worse\n{\"x\": 1}\n");
  const auto b = folder.write("b.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, -100]}\n");
  const DataSummary summary = inspect({a, b});
  EXPECT_EQ(summary.rows, 6);
  EXPECT_EQ(summary.bad_rows(), 3);
  EXPECT_EQ(summary.kinds, (std::map<RowKind, int64_t>{{RowKind::Text, 2}, {RowKind::Tokens, 1}}));
  EXPECT_EQ(summary.samples, 3);
  EXPECT_EQ(summary.tokens, 12);
  EXPECT_EQ(summary.trained_tokens, 2 + 5);  // the first token of a document is no target
  EXPECT_EQ(summary.lengths.count(), 3);
  EXPECT_EQ(summary.bad.at("invalid_json").rows, 2);
  EXPECT_NE(summary.bad.at("invalid_json").first.find("a.jsonl:2"), std::string::npos);
  EXPECT_EQ(summary.bad.at("unknown_kind").rows, 1);
  EXPECT_EQ(summary.warnings.at("nothing_to_train").rows, 1);
  EXPECT_NE(summary.warnings.at("nothing_to_train").first.find("b.jsonl:1"), std::string::npos);
  ASSERT_EQ(summary.longest.size(), 3u);
  EXPECT_EQ(summary.longest[0].tokens, 6);
  EXPECT_EQ(summary.longest[0].number, 3);
  EXPECT_NE(summary.longest[0].origin.find("a.jsonl:3"), std::string::npos);
  ASSERT_EQ(summary.fits.size(), kInspectedLengths.size());
  EXPECT_EQ(summary.fits[0].rows, 1);
  EXPECT_EQ(summary.fits[0].tokens, 9);  // without the row that has nothing to train
}

TEST(Inspection, DuplicatesAreRowsWithTheSameTokens) {
  const test::TemporaryFolder folder;
  const auto file =
      folder.write("a.jsonl", text_row("x") + text_row("y") + "{\"id\": 3, \"text\": \"x\"}\n" + text_row("\\u0078") +
                                  "{\"input_ids\": [120, 120], \"labels\": [120, 120]}\n"
                                  "{\"input_ids\": [120, 120], \"labels\": [120, -100]}\n");
  const DataSummary summary = inspect({file});
  EXPECT_EQ(summary.warnings.at("duplicate_row").rows, 2);
  EXPECT_NE(summary.warnings.at("duplicate_row").first.find("a.jsonl:3: gives the same tokens as row 1"),
            std::string::npos);
  EXPECT_TRUE(summary.all_rows_compared);
}

TEST(Inspection, WorkersDoNotChangeTheResult) {
  const test::TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 30000; ++i) {
    rows += i % 97 == 5 ? "{broken\n" : text_row(std::string(static_cast<size_t>(i * 31 % 400), 'x'));
  }
  const auto file = folder.write("a.jsonl", rows);
  const DataSummary alone = inspect({file});
  int64_t told = 0;
  const DataSummary many =
      inspect_data({file}, {.rows = row_options(), .workers = 3, .progress = [&](int64_t count) { told = count; }});
  EXPECT_EQ(told, 30000);
  EXPECT_EQ(many.tokens, alone.tokens);
  EXPECT_EQ(many.bad.at("invalid_json").first, alone.bad.at("invalid_json").first);
  EXPECT_EQ(many.warnings.at("duplicate_row").first, alone.warnings.at("duplicate_row").first);
  EXPECT_EQ(many.longest[4].number, alone.longest[4].number);
  for (size_t i = 0; i < alone.fits.size(); ++i) EXPECT_EQ(many.fits[i].rows, alone.fits[i].rows);
}

TEST(Inspection, NoRowsGiveAnEmptySummary) {
  const test::TemporaryFolder folder;
  const DataSummary summary = inspect({folder.write("a.jsonl", "")}, 2);
  EXPECT_EQ(summary.rows, 0);
  EXPECT_EQ(summary.fits[0].rows, 0);
  EXPECT_TRUE(summary.longest.empty());
}

TEST(Inspection, DamagedFilesAreErrors) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.json", "[{\"text\": \"x\"}] y");
  EXPECT_THROW(inspect({file}), InputError);
  EXPECT_THROW(inspect({file}, 2), InputError);
}

TEST(Inspection, OneRowIsFoundByItsNumberOverAllFiles) {
  const test::TemporaryFolder folder;
  const auto a = folder.write("a.jsonl", text_row("a") + "{bad\n");
  const auto b = folder.write("b.jsonl", R"({"messages": [{"role": "user", "content": "q"}, )"
                                         R"({"role": "assistant", "content": ""}]})");
  EXPECT_EQ(inspect_row({a, b}, 1, row_options()).kind, RowKind::Text);
  const InspectedRow chat = inspect_row({a, b}, 3, row_options());
  EXPECT_EQ(chat.samples.size(), 1u);
  ASSERT_EQ(chat.warnings.size(), 1u);
  EXPECT_STREQ(chat.warnings[0].code, "empty_answer");
  EXPECT_THROW(inspect_row({a, b}, 2, row_options()), RowError);
  const std::string message = testing::error_of<InputError>([&] { inspect_row({a, b}, 9, row_options()); });
  EXPECT_NE(message.find("9"), std::string::npos) << message;
}

}  // namespace
}  // namespace asterism::data
