#include "asterism/model/stream_context.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

TEST(StreamContext, HoldsOneTablePerRatioAndRestartsPositions) {
  const Config config = testing::tiny_config();
  const auto context = make_stream_context(config, testing::tiny_batch(config, {9, 4}), {});
  ASSERT_EQ(context->compression.size(), 2u);
  EXPECT_EQ(context->compression.at(4).windows.num_entries(), 2 + 1);
  EXPECT_EQ(context->compression.at(8).windows.num_entries(), 1);
  EXPECT_EQ(context->main_T.cos.sizes(), (std::vector<int64_t>{13, 2}));
  EXPECT_TRUE(at::equal(context->main_T.cos[0], context->main_T.cos[9]));
  EXPECT_FALSE(at::equal(context->main_T.cos[1], context->compress_T.cos[1]));
  // Tables stay fp32 whatever the compute type: bf16 loses positions at long range.
  ForwardOptions options;
  options.compute = at::kBFloat16;
  EXPECT_EQ(make_stream_context(config, testing::tiny_batch(config, {3}), options)->main_T.cos.scalar_type(),
            at::kFloat);
}

}  // namespace
}  // namespace asterism::model
