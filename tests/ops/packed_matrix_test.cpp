#include "asterism/ops/packed_matrix.h"

#include <gtest/gtest.h>

#include "asterism/ops/dequant.h"
#include "tests/support/packed_weights.h"

namespace asterism::ops {
namespace {

using testing::kPackings;
using testing::Packing;
using testing::random_packed;

// One matrix decoded by the whole-tensor operators, which have tests of their own.
at::Tensor dequantised(const PackedMatrix& m, at::ScalarType type) {
  return m.format == PackedFormat::kFp4 ? dequant_fp4(m.codes, m.scales, type) : dequant_fp8(m.codes, m.scales, type);
}

TEST(PackedMatrix, DecodesAsTheWholeTensorOperatorsDo) {
  for (const Packing packing : kPackings) {
    const PackedMatrix m = random_packed(packing, {300, 160}, "m");
    for (const auto type : {at::kFloat, at::kBFloat16}) EXPECT_TRUE(at::equal(m.decode(type), dequantised(m, type)));
    EXPECT_TRUE(at::equal(m.decode(at::kDouble), dequantised(m, at::kFloat).to(at::kDouble)));
    EXPECT_EQ(m.sizes(), (std::vector<int64_t>{300, 160}));
  }
}

TEST(PackedMatrix, EveryExpertAndEveryPartHasBlocksOfItsOwn) {
  for (const Packing packing : kPackings) {
    const PackedMatrix m = random_packed(packing, {3, 2 * 140, 64}, "experts", 2);
    const at::Tensor all = m.decode(at::kFloat);
    for (int64_t e = 0; e < 3; ++e) {
      for (const int64_t part : {0, 1}) {
        const int64_t scale_rows = m.scales.size(1) / 2;
        const PackedMatrix alone = make_packed(m.format, m.codes[e].narrow(0, part * 140, 140),
                                               m.scales[e].narrow(0, part * scale_rows, scale_rows));
        EXPECT_TRUE(at::equal(all[e].narrow(0, part * 140, 140), dequantised(alone, at::kFloat))) << e << " " << part;
      }
    }
  }
}

TEST(PackedMatrix, ATileIsThatPartOfTheMatrix) {
  for (const Packing packing : kPackings) {
    const PackedMatrix m = random_packed(packing, {2, 200, 192}, "tiles");
    const at::Tensor all = m.decode(at::kFloat);
    for (const Tile& tile : {Tile{0, 200, 0, 192}, Tile{120, 17, 0, 192}, Tile{0, 200, 48, 96}, Tile{199, 1, 190, 2},
                             Tile{5, 0, 0, 192}, Tile{5, 3, 64, 0}}) {
      const at::Tensor out = at::full({tile.rows, tile.columns}, -1.0F);
      m.decode_tile(1, tile, out);
      EXPECT_TRUE(
          at::equal(out, all[1].narrow(0, tile.first_row, tile.rows).narrow(1, tile.first_column, tile.columns)));
    }
  }
}

TEST(PackedMatrix, RowsKeepTheirBlocks) {
  for (const Packing packing : kPackings) {
    const PackedMatrix m = random_packed(packing, {300, 64}, "rows");
    const PackedMatrix middle = m.rows_of(100, 150), inner = middle.rows_of(90, 20);
    EXPECT_TRUE(at::equal(middle.decode(at::kFloat), m.decode(at::kFloat).narrow(0, 100, 150)));
    EXPECT_TRUE(at::equal(inner.decode(at::kFloat), m.decode(at::kFloat).narrow(0, 190, 20)));
    EXPECT_EQ(inner.codes.data_ptr(), m.codes[190].data_ptr());
    EXPECT_TRUE(at::equal(packed_of(to_ivalue(inner)).decode(at::kFloat), inner.decode(at::kFloat)));
  }
}

// What was decoded from a format keeps its values in it.
TEST(PackedMatrix, PackingWhatWasPackedGivesTheSameValues) {
  for (const Packing packing : kPackings) {
    const PackedMatrix m = random_packed(packing, {2, 280, 160}, "again", 2);
    const at::Tensor values = m.decode(at::kFloat);
    const PackedMatrix again = pack(values, m.format, m.scales.scalar_type(), 2);
    EXPECT_TRUE(at::equal(again.decode(at::kFloat), values));
    EXPECT_EQ(again.bytes(), m.bytes());
    const PackedMatrix::Part upper = m.part(1, 0), lower = m.part(1, 1);
    EXPECT_TRUE(at::equal(at::cat({upper.codes, lower.codes}), m.codes[1]));
    EXPECT_TRUE(at::equal(at::cat({upper.scales, lower.scales}), m.scales[1]));
  }
}

// 4.25 bits per FP4 parameter; 8 bits and one scale per 128 x 128 block of FP8.
TEST(PackedMatrix, TakesTheMemoryOfItsFormat) {
  constexpr int64_t kExperts = 4, kRows = 512, kColumns = 1024, kCount = kExperts * kRows * kColumns;
  const std::vector<int64_t> sizes = {kExperts, kRows, kColumns};
  EXPECT_EQ(random_packed(Packing::kFp4, sizes, "m", 2).bytes(), kCount * 17 / 32);
  EXPECT_EQ(random_packed(Packing::kFp8, sizes, "m", 2).bytes(), kCount + kCount / 16384);
  EXPECT_EQ(random_packed(Packing::kFp8WideScales, sizes, "m", 2).bytes(), kCount + 4 * kCount / 16384);
}

TEST(PackedMatrix, TheFrameworksOneByteTypesAreTakenAsBytes) {
  const PackedMatrix fp8 = random_packed(Packing::kFp8, {130, 64}, "m"),
                     fp4 = random_packed(Packing::kFp4, {6, 64}, "m");
  const PackedMatrix typed =
      make_packed(fp8.format, fp8.codes.view(at::kFloat8_e4m3fn), fp8.scales.view(at::kFloat8_e8m0fnu));
  EXPECT_TRUE(at::equal(typed.decode(at::kFloat), fp8.decode(at::kFloat)));
  const PackedMatrix signed_codes = make_packed(fp4.format, fp4.codes.view(at::kChar), fp4.scales);
  EXPECT_TRUE(at::equal(signed_codes.decode(at::kFloat), fp4.decode(at::kFloat)));
}

TEST(PackedMatrix, WhatDoesNotFitIsRefused) {
  const at::Tensor codes = at::zeros({256, 128}, at::kByte);
  const auto fp8 = PackedFormat::kFp8, fp4 = PackedFormat::kFp4;
  EXPECT_THROW(make_packed(fp8, codes, at::ones({1, 1})), c10::Error);                 // too few scales
  EXPECT_THROW(make_packed(fp8, codes, at::ones({2, 1}, at::kDouble)), c10::Error);    // fp64 scales
  EXPECT_THROW(make_packed(fp8, codes.to(at::kFloat), at::ones({2, 1})), c10::Error);  // no codes
  EXPECT_THROW(make_packed(fp8, codes, at::ones({2, 1}), 3), c10::Error);              // 256 rows in three parts
  EXPECT_THROW(make_packed(fp4, codes, at::ones({256, 8})), c10::Error);               // fp32 scales
  EXPECT_THROW(make_packed(fp4, codes, at::ones({256, 4}, at::kByte)), c10::Error);    // one per 64 columns
  EXPECT_THROW(make_packed(fp4, codes.narrow(1, 0, 24), at::ones({256, 1}, at::kByte)), c10::Error);  // 48 columns
  const PackedMatrix m = random_packed(Packing::kFp4, {8, 64}, "m");
  EXPECT_THROW(m.rows_of(4, 5), c10::Error);
  EXPECT_THROW(m.decode_tile(1, {0, 8, 0, 64}, at::empty({8, 64})), c10::Error);  // there is one matrix
  EXPECT_THROW(m.decode_tile(0, {0, 9, 0, 64}, at::empty({9, 64})), c10::Error);
  EXPECT_THROW(m.decode_tile(0, {0, 8, 1, 2}, at::empty({8, 2})), c10::Error);  // begins inside of a byte
  EXPECT_THROW(m.decode_tile(0, {0, 8, 0, 64}, at::empty({8, 62})), c10::Error);
  EXPECT_THROW(m.decode(at::kHalf), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
