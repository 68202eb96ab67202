#include "asterism/ops/packed_matmul.h"

#include <gtest/gtest.h>

#include "asterism/ops/matmul.h"
#include "tests/support/packed_weights.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using testing::kPackings;
using testing::Packing;
using testing::random_packed;
using testing::random_tensor;
using testing::relative_difference;

// Decoded first, then multiplied range by range.
at::Tensor decoded_first(const at::Tensor& x, const PackedMatrix& w, at::ArrayRef<RowRange> ranges, bool transposed) {
  const at::Tensor decoded = w.decode(product_type(x.scalar_type())).view({w.num_matrices(), w.rows(), w.columns()});
  std::vector<at::Tensor> parts;
  for (const RowRange& range : ranges) {
    const at::Tensor& m = decoded[range.matrix];
    parts.push_back(transposed ? matmul_nt(range.of(x), m) : matmul_nn(range.of(x), m));
  }
  return at::cat(parts);
}

double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-13 : type == at::kFloat ? 1e-6 : 8e-3;
}

// Shapes with tails in every direction: rows beyond one task, several tiles, partial blocks, a matrix without rows.
TEST(PackedMatmul, EqualsDecodingFirst) {
  const std::vector<RowRange> ranges = {{2, 0, 600}, {0, 600, 1}, {1, 601, 0}, {3, 601, 39}};
  for (const Packing packing : kPackings) {
    const PackedMatrix w = random_packed(packing, {4, 280, 416}, "w", 2);
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const at::Tensor x = random_tensor({640, 416}, "x").to(type), dy = random_tensor({640, 280}, "dy").to(type);
      const at::Tensor y = packed_matmul_nt(x, w, ranges), dx = packed_matmul_nn(dy, w, ranges);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_LE(relative_difference(y, decoded_first(x, w, ranges, true)), tolerance(type)) << type;
      EXPECT_LE(relative_difference(dx, decoded_first(dy, w, ranges, false)), tolerance(type)) << type;
    }
  }
}

// The summed dimension is so long that a tile has the least width.
TEST(PackedMatmul, LongSumsAreMadeInOneProduct) {
  const PackedMatrix tall = random_packed(Packing::kFp8, {20000, 40}, "tall");
  const PackedMatrix wide = random_packed(Packing::kFp4, {40, 20000 / 32 * 32}, "wide");
  const at::Tensor dy = random_tensor({3, 20000}, "dy").to(at::kFloat);
  const at::Tensor x = random_tensor({3, wide.columns()}, "x").to(at::kFloat);
  const RowRange all{0, 0, 3};
  EXPECT_LE(relative_difference(packed_matmul_nn(dy, tall, all), decoded_first(dy, tall, all, false)), 1e-5);
  EXPECT_LE(relative_difference(packed_matmul_nt(x, wide, all), decoded_first(x, wide, all, true)), 1e-5);
}

TEST(PackedMatmul, StridedAndTransposedInputsAreFine) {
  const PackedMatrix w = random_packed(Packing::kFp4, {70, 64}, "w");
  const at::Tensor wide = random_tensor({9, 200}, "x").to(at::kFloat);
  const RowRange all{0, 0, 9};
  const at::Tensor part = wide.narrow(1, 40, 64), turned = part.t().contiguous().t();
  EXPECT_TRUE(at::equal(packed_matmul_nt(part, w, all), packed_matmul_nt(part.contiguous(), w, all)));
  EXPECT_LE(relative_difference(packed_matmul_nt(turned, w, all), packed_matmul_nt(part, w, all)), 1e-6);
}

TEST(PackedMatmul, AnyNumberOfThreadsGivesTheSameBits) {
  const PackedMatrix experts = random_packed(Packing::kFp4, {5, 512, 512}, "w"),
                     one = random_packed(Packing::kFp8, {16, 512}, "o");
  const at::Tensor x = random_tensor({120, 512}, "x").to(at::kFloat);
  const std::vector<RowRange> ranges = {{0, 0, 60}, {1, 60, 30}, {3, 90, 29}, {4, 119, 1}};
  testing::expect_threads_do_not_matter([&] {
    // The last is a single task.
    return std::vector<at::Tensor>{packed_matmul_nt(x, experts, ranges), packed_matmul_nn(x, experts, ranges),
                                   packed_matmul_nt(x, one, RowRange{0, 0, 120}),
                                   packed_matmul_nt(x.to(at::kBFloat16), experts, ranges)};
  });
}

TEST(PackedMatmul, NoRowsGiveNoRows) {
  const PackedMatrix w = random_packed(Packing::kFp8, {2, 70, 64}, "w");
  EXPECT_EQ(packed_matmul_nt(at::empty({0, 64}), w, {}).sizes(), at::IntArrayRef({0, 70}));
  EXPECT_EQ(packed_matmul_nn(at::empty({0, 70}), w, RowRange{1, 0, 0}).sizes(), at::IntArrayRef({0, 64}));
}

TEST(PackedMatmul, RowsWithoutAMatrixAreRefused) {
  const PackedMatrix w = random_packed(Packing::kFp8, {2, 70, 64}, "w");
  EXPECT_THROW(packed_matmul_nt(at::ones({3, 64}), w, RowRange{0, 0, 2}), c10::Error);
  EXPECT_THROW(packed_matmul_nt(at::ones({3, 70}), w, RowRange{0, 0, 3}), c10::Error);
  EXPECT_THROW(packed_matmul_nt(at::ones({3, 64}), w, RowRange{2, 0, 3}), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
