#include "asterism/cli/summary_report.h"

#include <gtest/gtest.h>

#include "tests/support/data_files.h"

namespace asterism::cli {
namespace {

data::DataSummary summary_of(const std::string& rows) {
  const test::TemporaryFolder folder;
  data::RowOptions options;
  options.tokenize = test::tokenize_bytes;
  return data::inspect_data({folder.write("a.jsonl", rows)}, {.rows = options, .workers = 0, .progress = {}});
}

const std::string kRows =
    "{\"text\": \"" + std::string(1200, 'x') + "\"}\n{\"text\": \"abc\"}\n{\"text\": \"abc\"}\n{bad\x1b\n";

TEST(SummaryReport, NumbersAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
}

TEST(SummaryReport, PeopleReadTotalsProblemsAndWarnings) {
  const std::string report = summary_text(summary_of(kRows));
  for (const char* part : {"rows             4, of which 1 bad", "plain-text 3", "tokens           1,206",
                           "trained tokens   1,203 (99.8 %)", "longest 1,200", "1,025 -     2,048            1  ####",
                           "1,200 tokens  row 1, ", "invalid_json", "duplicate_row", "a.jsonl:4"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << " in\n" << report;
  }
  EXPECT_NE(report.find("            512                 1            1,200             1    1.2 %\n"),
            std::string::npos)
      << report;
  EXPECT_EQ(report.find('\x1b'), std::string::npos) << "what a row holds must not steer the terminal";
}

TEST(SummaryReport, ProgramsReadTheSame) {
  const auto json = summary_json(summary_of(kRows));
  EXPECT_EQ(json.at("rows"), 4);
  EXPECT_EQ(json.at("bad_rows"), 1);
  EXPECT_EQ(json.at("kinds").dump(), R"({"plain-text":3})");
  EXPECT_EQ(json.at("tokens"), 1206);
  EXPECT_EQ(json.at("trained_tokens"), 1203);
  EXPECT_EQ(json.at("sample_tokens").at("max"), 1200);
  EXPECT_EQ(json.at("fits").at(0).dump(),
            R"({"sequence_length":512,"dropped":1,"dropped_tokens":1200,"packed_rows":1,"fill_ratio":0.01171875})");
  EXPECT_EQ(json.at("longest").at(0).at("row"), 1);
  EXPECT_EQ(json.at("bad").at("invalid_json").at("rows"), 1);
  EXPECT_EQ(json.at("warnings").at("duplicate_row").at("rows"), 1);
}

TEST(SummaryReport, NothingIsReportedToo) {
  EXPECT_NE(summary_text(summary_of("")).find("rows             0\n"), std::string::npos);
  EXPECT_EQ(summary_json(summary_of("")).at("samples"), 0);
}

}  // namespace
}  // namespace asterism::cli
