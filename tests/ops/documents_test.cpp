#include "asterism/ops/documents.h"

#include <gtest/gtest.h>

namespace asterism::ops {
namespace {

TEST(Documents, PositionsRestartInEveryDocument) {
  const Documents documents = make_documents({3, 1, 2});
  EXPECT_EQ(documents.num_tokens(), 6);
  EXPECT_TRUE(at::equal(documents.position_T, at::tensor({0, 1, 2, 0, 0, 1}, at::kLong)));
  EXPECT_EQ(make_documents({}).num_tokens(), 0);
  EXPECT_THROW(make_documents({2, 0}), c10::Error);
}

TEST(Windows, TailsMakeNoEntryAndVisibilityIsTheFloorOfTPlusOne) {
  const Windows windows = make_windows(make_documents({5, 1, 4}), 2);
  EXPECT_EQ(windows.offsets, (std::vector<int64_t>{0, 2, 2, 4}));
  EXPECT_TRUE(at::equal(windows.first_token_C, at::tensor({0, 2, 6, 8}, at::kLong)));
  EXPECT_TRUE(at::equal(windows.position_C, at::tensor({0, 2, 0, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(windows.visible_begin_T, at::tensor({0, 0, 0, 0, 0, 2, 2, 2, 2, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(windows.visible_end_T, at::tensor({0, 1, 1, 2, 2, 2, 2, 3, 3, 4}, at::kLong)));
  EXPECT_FALSE(windows.has_previous_C[2].item<bool>());
  EXPECT_TRUE(windows.has_previous_C[3].item<bool>());
}

}  // namespace
}  // namespace asterism::ops
