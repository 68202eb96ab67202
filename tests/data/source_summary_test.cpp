#include "asterism/data/source_summary.h"

#include <gtest/gtest.h>

#include "tests/data/compress.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

TEST(SourceSummary, FormatAndKindAreNamed) {
  const test::TemporaryFolder folder;
  const auto described = [&](const std::string& name, const std::string& content) {
    return describe_source("s", {folder.write(name, content)});
  };
  EXPECT_EQ(described("a.jsonl", "{\"messages\": []}\n"), "s: chat rows in JSON Lines");
  EXPECT_EQ(described("a.json", "[{\"input_ids\": []}]"), "s: token rows in a JSON list");
  EXPECT_EQ(described("a.jsonl.gz", gzipped("{\"conversations\": []}\n")), "s: ShareGPT rows in JSON Lines (gzip)");
  EXPECT_EQ(described("a.jsonl", "{bad\n{}\n{\"text\": \"x\"}\n"), "s: plain-text rows in JSON Lines");
  EXPECT_EQ(described("a.jsonl", ""), "s: no rows in JSON Lines");
}

TEST(SourceSummary, TheFirstGoodRowOfAllFilesSpeaks) {
  const test::TemporaryFolder folder;
  const auto a = folder.write("a.jsonl", ""), b = folder.write("b.json", "[{\"instruction\": \"i\"}]");
  EXPECT_EQ(describe_source("folder", {a, b}), "folder: Alpaca rows in a JSON list, 2 files");
}

}  // namespace
}  // namespace asterism::data
