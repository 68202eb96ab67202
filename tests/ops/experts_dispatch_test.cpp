#include <gtest/gtest.h>

#include "asterism/ops/experts.h"

namespace asterism::ops {
namespace {

at::Tensor longs(std::vector<int64_t> values) {
  return at::tensor(values, at::kLong);
}

TEST(Dispatch, RowsOfAnExpertKeepTokenAndSlotOrder) {
  const Dispatch d = make_dispatch(longs({2, 0, 0, 2, 2, 2}).view({3, 2}), 4);  // token 2 names expert 2 twice
  EXPECT_EQ(d.num_experts, 4);
  EXPECT_EQ(d.offsets, (std::vector<int64_t>{0, 2, 2, 6, 6}));
  EXPECT_TRUE(at::equal(d.token_R, longs({0, 1, 0, 1, 2, 2})));
  EXPECT_TRUE(at::equal(d.slot_R, longs({1, 2, 0, 3, 4, 5})));
  EXPECT_TRUE(at::equal(d.row_TK, longs({2, 0, 1, 3, 4, 5}).view({3, 2})));
}

TEST(Dispatch, NoTokensMakeNoRows) {
  const Dispatch d = make_dispatch(at::empty({0, 2}, at::kLong), 3);
  EXPECT_EQ(d.offsets, (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(d.token_R.numel(), 0);
  EXPECT_EQ(d.row_TK.sizes(), at::IntArrayRef({0, 2}));
}

TEST(Dispatch, AnUnknownExpertIsNamed) {
  try {
    make_dispatch(longs({0, 1, 2, 7}).view({2, 2}), 4);
    FAIL() << "expert 7 of 4 was accepted";
  } catch (const c10::Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("got 7 for token 1, slot 1"), std::string::npos) << message;
  }
  EXPECT_THROW(make_dispatch(longs({-1}).view({1, 1}), 4), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
