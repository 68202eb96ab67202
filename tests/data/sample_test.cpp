#include "asterism/data/sample.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(Sample, TheFirstTokenIsNeverTrained) {
  Sample sample;
  EXPECT_EQ(sample.trained_tokens(), 0);
  sample.ids = {5, 6, 7, 8};
  sample.weights = {1.0f, 0.0f, 0.25f, 1.0f};
  EXPECT_EQ(sample.size(), 4);
  EXPECT_EQ(sample.trained_tokens(), 2);
}

}  // namespace
}  // namespace asterism::data
