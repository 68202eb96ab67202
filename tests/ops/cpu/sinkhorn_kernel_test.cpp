#include "asterism/ops/cpu/sinkhorn_kernel.h"

#include <gtest/gtest.h>

#include <cmath>

namespace asterism::ops::cpu {
namespace {

// Logits that differ from lane to lane.
std::vector<double> make_block(int64_t n) {
  std::vector<double> block(n * n * kSinkhornLanes);
  for (size_t i = 0; i < block.size(); ++i) block[i] = 2.0 * std::sin(1.0 + 0.7 * static_cast<double>(i));
  return block;
}

TEST(Sinkhorn, LastStepIsAColumnStep) {
  const int64_t n = 4;
  std::vector<double> block = make_block(n);
  Sinkhorn<double>(n, 20, 0.0).forward(block.data());
  for (int64_t k = 0; k < n; ++k) {
    double column = 0, row = 0;
    for (int64_t j = 0; j < n; ++j) column += block[(j * n + k) * kSinkhornLanes + 3];
    for (int64_t j = 0; j < n; ++j) row += block[(k * n + j) * kSinkhornLanes + 3];
    EXPECT_NEAR(column, 1.0, 1e-14);
    EXPECT_NEAR(row, 1.0, 1e-3);
  }
}

TEST(Sinkhorn, OneIterationIsSoftmaxThenColumns) {
  const double eps = 0.25;
  std::vector<double> block(4 * kSinkhornLanes, 0.0);
  block[1 * kSinkhornLanes] = std::log(3.0);  // row 0: 1/4, 3/4; row 1: 1/2, 1/2
  Sinkhorn<double>(2, 1, eps).forward(block.data());
  EXPECT_NEAR(block[0], 0.5 / (0.5 + 0.75 + eps), 1e-15);
  EXPECT_NEAR(block[1 * kSinkhornLanes], 1.0 / (1.0 + 0.75 + eps), 1e-15);
  EXPECT_NEAR(block[2 * kSinkhornLanes], 0.75 / (0.5 + 0.75 + eps), 1e-15);
}

TEST(Sinkhorn, BackwardMatchesFiniteDifferences) {
  const int64_t n = 3, lane = 5, size = n * n * kSinkhornLanes;
  const std::vector<double> logits = make_block(n);
  std::vector<double> grad(size);
  for (int64_t i = 0; i < size; ++i) grad[i] = std::cos(0.3 * static_cast<double>(i));
  const std::vector<double> cotangent = grad;
  Sinkhorn<double> sinkhorn(n, 20, 1e-6);
  const auto contract = [&](std::vector<double> block) {
    sinkhorn.forward(block.data());
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += block[i] * cotangent[i];
    return sum;
  };
  for (int64_t i = 0; i < n * n; ++i) {
    std::vector<double> above = logits, below = logits;
    above[i * kSinkhornLanes + lane] += 1e-5;
    below[i * kSinkhornLanes + lane] -= 1e-5;
    const double numeric = (contract(above) - contract(below)) / 2e-5;
    std::vector<double> block = logits, analytic = cotangent;
    sinkhorn.forward(block.data());
    sinkhorn.backward(analytic.data());
    EXPECT_NEAR(analytic[i * kSinkhornLanes + lane], numeric, 1e-8) << "element " << i;
  }
}

TEST(Sinkhorn, ALaneDoesNotDependOnItsPlaceOrNeighbours) {
  const int64_t n = 4;
  const std::vector<double> logits = make_block(n);
  std::vector<float> block(logits.begin(), logits.end()), moved(block.size(), 0.0f);
  for (int64_t i = 0; i < n * n; ++i) moved[i * kSinkhornLanes + 15] = block[i * kSinkhornLanes + 2];
  Sinkhorn<float> sinkhorn(n, 20, 1e-6f);
  sinkhorn.forward(block.data());
  sinkhorn.forward(moved.data());
  for (int64_t i = 0; i < n * n; ++i) EXPECT_EQ(block[i * kSinkhornLanes + 2], moved[i * kSinkhornLanes + 15]);
}

}  // namespace
}  // namespace asterism::ops::cpu
