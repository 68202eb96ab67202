#include <gtest/gtest.h>

#include "asterism/ops/dequant.h"
#include "asterism/ops/quantize.h"
#include "tests/ops/all/checks.h"
#include "tests/support/packed_weights.h"

namespace asterism::testing {

namespace {

int64_t codec_columns(Packing packing, Shape shape) {
  return packing == Packing::kFp4 ? at_shape(shape, 32, 96, 1344) : at_shape(shape, 5, 133, 1344);
}

// bytes, scales
Problem decode_problem(Packing packing, Shape shape, int64_t rows) {
  const int64_t columns = codec_columns(packing, shape);
  Inputs in;
  if (rows > 0) {
    const ops::PackedMatrix packed = random_packed(packing, {rows, columns}, "packed");
    in = {packed.codes, packed.scales};
  } else {
    in = {at::empty({0, columns}, at::kByte), at::empty({0, (columns + 127) / 128}, at::kByte)};
    if (packing == Packing::kFp4)
      in = {at::empty({0, columns / 2}, at::kByte), at::empty({0, columns / 32}, at::kByte)};
    if (packing == Packing::kFp8WideScales) in[1] = in[1].to(at::kFloat);
  }
  return {.inputs = in, .run = {}, .observe = [packing](const Inputs& x) -> Outputs {
            const auto decode = packing == Packing::kFp4 ? ops::dequant_fp4 : ops::dequant_fp8;
            return {decode(x[0], x[1].to(packing == Packing::kFp8WideScales ? at::kFloat : at::kByte), at::kFloat),
                    decode(x[0], x[1].to(packing == Packing::kFp8WideScales ? at::kFloat : at::kByte), at::kBFloat16)};
          }};
}

double fp4_value(int64_t nibble) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return nibble & 8 ? -kMagnitudes[nibble & 7] : kMagnitudes[nibble & 7];
}

// Code times scale in fp64, number by number.
at::Tensor decoded_exactly(Packing packing, const at::Tensor& bytes, const at::Tensor& scales) {
  const int64_t rows = bytes.size(0), columns = bytes.size(1) * (packing == Packing::kFp4 ? 2 : 1);
  const at::Tensor out = at::empty({rows, columns}, at::kDouble);
  const at::Tensor scale = scales.scalar_type() == at::kByte ? at::exp2(scales.to(at::kDouble) - 127) : scales;
  auto value = out.accessor<double, 2>();
  const auto code = bytes.accessor<uint8_t, 2>();
  const at::Tensor wide = scale.to(at::kDouble);
  const auto factor = wide.accessor<double, 2>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      value[r][c] = packing == Packing::kFp4
                        ? fp4_value(code[r][c / 2] >> (c % 2 * 4) & 15) * factor[r][c / 32]
                        : static_cast<double>(ops::decode_e4m3(code[r][c])) * factor[r / 128][c / 128];
    }
  }
  return out;
}

// One rounding of the exact product: to fp32, and from there to bf16.
void expect_exact_decoding(const Operator& op, Packing packing, Shape shape, int64_t rows) {
  const Problem problem = op.make(shape, rows);
  const at::Tensor exact = decoded_exactly(packing, problem.inputs[0], problem.inputs[1]).to(at::kFloat);
  const Outputs got = evaluate(problem, at::kFloat).observed;
  EXPECT_TRUE(at::equal(got[0], exact));
  EXPECT_TRUE(at::equal(got[1], exact.to(at::kBFloat16)));
}

void answer_for_codecs(Operator& op) {
  op.answers.insert({Property::kGradients, kNotDifferentiable});
  op.answers.insert({Property::kUnused, kNoIndices});
  op.answers.insert({Property::kDuplicates, kNoIndices});
}

Operator decode_operator(const std::string& name, Packing packing) {
  Operator op{.name = name,
              .make = [packing](Shape shape, int64_t rows) { return decode_problem(packing, shape, rows); },
              .narrow = {},
              .same_bits_at_levels = true};
  op.rows[Shape::kTail] = 133;
  op.rows[Shape::kWide] = 260;
  const auto exact = [op, packing](Shape shape, int64_t rows) {
    return Answer([=] { expect_exact_decoding(op, packing, shape, rows); });
  };
  op.answers = {{Property::kFp64, exact(Shape::kWide, 260)},
                {Property::kOneRow, exact(Shape::kTail, 1)},
                {Property::kTails, exact(Shape::kTail, 133)},
                {Property::kTies, "DecodeKernel.Bf16IsRoundedOnceToNearestEven, in decode_kernel_test"},
                {Property::kExtremes, "every code with every scale, in decode_kernel_test"},
                {Property::kNan, "every code with every scale, in decode_kernel_test"}};
  answer_for_codecs(op);
  return op;
}

// ---- encoding -----------------------------------------------------------------------------------------------------

ops::QuantizedMatrix encode(Packing packing, const at::Tensor& w) {
  if (packing == Packing::kFp4) return ops::quantize_fp4(w);
  return ops::quantize_fp8(w, packing == Packing::kFp8 ? ops::ScaleType::kE8m0 : ops::ScaleType::kFp32);
}

Problem encode_problem(Packing packing, Shape shape, int64_t rows) {
  return {.inputs = {random_tensor({rows, codec_columns(packing, shape)}, "w")},
          .run = {},
          .observe = [packing](const Inputs& in) -> Outputs {
            const ops::QuantizedMatrix matrix = encode(packing, in[0]);
            return {matrix.bytes, matrix.scale};
          }};
}

// What comes back is the nearest value: half a step away at most, the step being that of the code or the smallest one.
void expect_nearest_values(Packing packing, Shape shape, int64_t rows) {
  const at::Tensor w = random_tensor({rows, codec_columns(packing, shape)}, "w").to(at::kFloat);
  const ops::QuantizedMatrix matrix = encode(packing, w);
  const at::Tensor back = decoded_exactly(packing, matrix.bytes, matrix.scale), x = w.to(at::kDouble);
  const double half_step = packing == Packing::kFp4 ? 1.0 / 4 : 1.0 / 16, top = packing == Packing::kFp4 ? 6 : 448;
  const int64_t block = packing == Packing::kFp4 ? 32 : 128;
  for (int64_t column = 0; column < x.size(1); column += block) {
    for (int64_t row = 0; row < rows; row += packing == Packing::kFp4 ? 1 : 128) {
      const int64_t last = packing == Packing::kFp4 ? row + 1 : row + 128;
      const at::Tensor in = x.slice(0, row, last).slice(1, column, column + block);
      const at::Tensor gap = (back.slice(0, row, last).slice(1, column, column + block) - in).abs();
      const double smallest = packing == Packing::kFp4 ? 0.25 : 0x1p-10;  // half of the smallest code
      // The scale is at most twice what the largest number needs.
      const double scale = 2 * in.abs().max().item<double>() / top;
      EXPECT_TRUE((gap <= (in.abs() * half_step).clamp_min(smallest * scale) * (1 + 1e-6)).all().item<bool>());
    }
  }
}

void expect_not_a_number_is_refused(Packing packing) {
  const at::Tensor w = at::ones({2, 64});
  w[1][63] = NAN;
  EXPECT_THROW(encode(packing, w), c10::Error);
}

Operator encode_operator(const std::string& name, Packing packing) {
  Operator op{.name = name,
              .make = [packing](Shape shape, int64_t rows) { return encode_problem(packing, shape, rows); },
              .narrow = {},
              .same_bits_at_levels = true};
  op.rows[Shape::kTail] = 133;
  op.rows[Shape::kWide] = 260;
  const auto nearest = [packing](Shape shape, int64_t rows) {
    return Answer([=] { expect_nearest_values(packing, shape, rows); });
  };
  op.answers = {{Property::kFp64, nearest(Shape::kWide, 260)},
                {Property::kOneRow, nearest(Shape::kTail, 1)},
                {Property::kTails, nearest(Shape::kTail, 133)},
                {Property::kTies, "FloatCodes.*RoundsToNearestEven.., in quantize_test"},
                {Property::kExtremes, "FloatCodes.*Saturates and QuantizeFp8.TheScale.., in quantize_test"},
                {Property::kNan, Answer([packing] { expect_not_a_number_is_refused(packing); })}};
  answer_for_codecs(op);
  return op;
}

}  // namespace

std::vector<Operator> codec_operators() {
  return {decode_operator("DequantFp8", Packing::kFp8),
          decode_operator("DequantFp8Fp32Scales", Packing::kFp8WideScales),
          decode_operator("DequantFp4", Packing::kFp4),
          encode_operator("QuantizeFp8", Packing::kFp8),
          encode_operator("QuantizeFp8Fp32Scales", Packing::kFp8WideScales),
          encode_operator("QuantizeFp4", Packing::kFp4)};
}

}  // namespace asterism::testing
