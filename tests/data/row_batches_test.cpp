#include "asterism/data/row_batches.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::data {
namespace {

using testing::TemporaryFolder;

TEST(RowBatches, HoldEveryRowOnceInOrderAndNoTwoFiles) {
  const TemporaryFolder folder;
  std::string many;
  const std::string filler(1000, 'x');
  for (int i = 0; i < 1000; ++i) many += "{\"text\": \"" + std::to_string(i) + filler + "\"}\n";
  const std::vector<std::filesystem::path> files = {folder.write("a.jsonl", "{\"text\": \"a\"}\n"),
                                                    folder.write("b.jsonl", ""), folder.write("c.jsonl", many)};
  std::vector<size_t> ended;
  RowBatches batches(files, [&](size_t file) { ended.push_back(file); });
  const auto first = batches.next();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->file, 0u);
  ASSERT_EQ(first->rows.size(), 1u);
  EXPECT_EQ(first->rows[0].view().text, "{\"text\": \"a\"}");
  EXPECT_EQ(ended, std::vector<size_t>{0});
  uint64_t number = 0, batch_count = 0;
  while (const auto batch = batches.next()) {
    EXPECT_EQ(batch->file, 2u);
    EXPECT_EQ(batch->first_number, number);
    ASSERT_FALSE(batch->rows.empty());
    for (const OwnedRow& row : batch->rows) {
      EXPECT_EQ(row.view().text, "{\"text\": \"" + std::to_string(number++) + filler + "\"}");
    }
    ++batch_count;
  }
  EXPECT_EQ(number, 1000u);
  EXPECT_GT(batch_count, 2u);
  EXPECT_EQ(ended, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(batches.next(), nullptr);
}

TEST(RowBatches, RowsInFrontOfDamageComeFirst) {
  const TemporaryFolder folder;
  RowBatches batches({folder.write("a.jsonl", "{\"text\": \"a\"}\n"), folder / "absent.jsonl"});
  EXPECT_EQ(batches.next()->rows.size(), 1u);
  EXPECT_THROW(batches.next(), InputError);
}

}  // namespace
}  // namespace asterism::data
