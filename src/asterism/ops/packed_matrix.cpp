#include "asterism/ops/packed_matrix.h"

#include <ATen/Parallel.h>

#include "asterism/ops/cpu/decode_kernel.h"
#include "asterism/ops/quantize.h"

namespace asterism::ops {

namespace {

constexpr int64_t kPackedBlock = 128;        // rows and columns that share an FP8 scale
constexpr int64_t kPackedScaleColumns = 32;  // columns that share an FP4 scale

int64_t packed_blocks(int64_t length) {
  return (length + kPackedBlock - 1) / kPackedBlock;
}

// Row of the scales that belongs to a row of the matrix: every part begins with a block of its own.
int64_t packed_block_row(const PackedMatrix& m, int64_t row) {
  if (m.parts == 1) return (m.first_row + row) / kPackedBlock;
  const int64_t part_rows = m.rows() / m.parts;
  return row / part_rows * packed_blocks(part_rows) + row % part_rows / kPackedBlock;
}

template <typename T>
void decode_packed_rows(const PackedMatrix& m, int64_t matrix, const Tile& tile, T* out) {
  const int64_t code_width = m.codes.size(-1), scale_rows = m.scales.size(-2), scale_width = m.scales.size(-1);
  const uint8_t* codes = m.codes.const_data_ptr<uint8_t>() + (matrix * m.rows() + tile.first_row) * code_width;
  const int64_t begin = tile.first_column, end = begin + tile.columns;
  const bool wide_scales = m.scales.scalar_type() == at::kFloat;
  const float* wide = wide_scales ? m.scales.const_data_ptr<float>() : nullptr;
  const uint8_t* narrow = wide_scales ? nullptr : m.scales.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < tile.rows; ++i, codes += code_width, out += tile.columns) {
    const int64_t row = tile.first_row + i;
    if (m.format == PackedFormat::kFp4) {
      const int64_t scale_row = matrix * scale_rows + m.first_row + row;
      cpu::decode_fp4_row(codes, narrow + scale_row * scale_width, begin, end, out);
      continue;
    }
    const int64_t offset = (matrix * scale_rows + packed_block_row(m, row)) * scale_width;
    if (wide_scales) {
      cpu::decode_fp8_row(codes, wide + offset, begin, end, out);
    } else {
      cpu::decode_fp8_row(codes, narrow + offset, begin, end, out);
    }
  }
}

// Shape of the scales of codes for values of shape `sizes`.
std::vector<int64_t> scale_sizes(PackedFormat format, std::vector<int64_t> sizes, int64_t parts) {
  int64_t &rows = sizes[sizes.size() - 2], &columns = sizes.back();
  if (format == PackedFormat::kFp4) {
    columns /= kPackedScaleColumns;
  } else {
    rows = parts * packed_blocks(rows / parts);
    columns = packed_blocks(columns);
  }
  return sizes;
}

struct PackedCapsule : torch::CustomClassHolder {
  explicit PackedCapsule(PackedMatrix m) : matrix(std::move(m)) {}
  PackedMatrix matrix;
};

// The bytes of a one-byte type.
at::Tensor as_codes(const at::Tensor& tensor) {
  return tensor.element_size() == 1 ? tensor.contiguous().view(at::kByte) : tensor.contiguous();
}

}  // namespace

std::vector<int64_t> PackedMatrix::sizes() const {
  if (codes.dim() == 3) return {codes.size(0), rows(), columns()};
  return {rows(), columns()};
}

int64_t PackedMatrix::bytes() const {
  return static_cast<int64_t>(codes.nbytes() + scales.nbytes());
}

PackedMatrix PackedMatrix::rows_of(int64_t first, int64_t count) const {
  TORCH_CHECK(codes.dim() == 2 && parts == 1 && first >= 0 && count >= 0 && first + count <= rows(),
              "[packed_matrix] rows ", first, " .. ", first + count, " of a matrix ", sizes(), " of ", parts, " parts");
  PackedMatrix part = *this;
  part.codes = codes.narrow(0, first, count);
  part.first_row = first_row + first;
  return part;
}

PackedMatrix::Part PackedMatrix::part(int64_t matrix, int64_t part) const {
  const auto cut = [&](const at::Tensor& tensor) {
    const at::Tensor whole = tensor.dim() == 3 ? tensor[matrix] : tensor;
    const int64_t height = whole.size(0) / parts;
    return whole.narrow(0, part * height, height);
  };
  return {cut(codes), cut(scales)};
}

void PackedMatrix::decode_tile(int64_t matrix, const Tile& tile, const at::Tensor& out) const {
  TORCH_CHECK(matrix >= 0 && matrix < num_matrices() && tile.first_row >= 0 && tile.first_column >= 0 &&
                  tile.first_row + tile.rows <= rows() && tile.first_column + tile.columns <= columns(),
              "[packed_matrix] tile [", tile.first_row, " + ", tile.rows, ", ", tile.first_column, " + ", tile.columns,
              "] of matrix ", matrix, " lies outside ", sizes());
  TORCH_CHECK(format == PackedFormat::kFp8 || (tile.first_column % 2 == 0 && tile.columns % 2 == 0),
              "[packed_matrix] an FP4 tile begins and ends at even columns, got ", tile.first_column, " + ",
              tile.columns);
  TORCH_CHECK(out.is_contiguous() && out.numel() == tile.rows * tile.columns, "[packed_matrix] the result must be [",
              tile.rows, ", ", tile.columns, "], contiguous, got ", out.sizes());
  switch (out.scalar_type()) {
    case at::kFloat:
      return decode_packed_rows(*this, matrix, tile, out.mutable_data_ptr<float>());
    case at::kDouble:
      return decode_packed_rows(*this, matrix, tile, out.mutable_data_ptr<double>());
    case at::kBFloat16:
      return decode_packed_rows(*this, matrix, tile, reinterpret_cast<uint16_t*>(out.mutable_data_ptr<at::BFloat16>()));
    default:
      TORCH_CHECK(false, "[packed_matrix] values are decoded to fp32, fp64 or bf16, asked for ", out.scalar_type());
  }
}

at::Tensor PackedMatrix::decode(at::ScalarType type) const {
  if (codes.is_meta()) return at::empty(sizes(), codes.options().dtype(type));
  at::Tensor out = at::empty(sizes(), type);
  const at::Tensor flat = out.view({num_matrices(), rows(), columns()});
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns()));
  at::parallel_for(0, num_matrices() * rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t next = begin; next < end;) {
      const int64_t matrix = next / rows(), row = next % rows(), count = std::min(rows() - row, end - next);
      decode_tile(matrix, {row, count, 0, columns()}, flat[matrix].narrow(0, row, count));
      next += count;
    }
  });
  return out;
}

PackedMatrix make_packed(PackedFormat format, const at::Tensor& codes, const at::Tensor& scales, int64_t parts) {
  PackedMatrix m{
      .format = format, .codes = as_codes(codes), .scales = as_codes(scales), .parts = parts, .first_row = 0};
  const bool fp4 = format == PackedFormat::kFp4;
  TORCH_CHECK((m.codes.dim() == 2 || m.codes.dim() == 3) && m.codes.scalar_type() == at::kByte,
              "[packed_matrix] codes must be one byte each, [N, K] or [E, N, K], got ", codes.sizes(), " ",
              codes.scalar_type());
  TORCH_CHECK(m.scales.scalar_type() == at::kByte || (!fp4 && m.scales.scalar_type() == at::kFloat),
              "[packed_matrix] scales must be ", fp4 ? "uint8 (e8m0)" : "uint8 (e8m0) or fp32", ", got ",
              scales.scalar_type());
  TORCH_CHECK(parts > 0 && m.rows() % parts == 0, "[packed_matrix] ", m.rows(), " rows are not ", parts,
              " parts of equal height");
  TORCH_CHECK(!fp4 || m.columns() % kPackedScaleColumns == 0,
              "[packed_matrix] the number of columns of FP4 codes must be a multiple of 32, got ", m.columns());
  const std::vector<int64_t> expected = scale_sizes(format, m.sizes(), parts);
  TORCH_CHECK(m.scales.sizes() == at::IntArrayRef(expected), "[packed_matrix] codes for ", m.sizes(), " in ", parts,
              " parts need scales ", expected, ", got ", m.scales.sizes());
  return m;
}

PackedMatrix empty_packed(PackedFormat format, at::IntArrayRef sizes, at::ScalarType scale_type, int64_t parts) {
  std::vector<int64_t> codes = sizes.vec();
  if (format == PackedFormat::kFp4) codes.back() /= 2;
  return make_packed(format, at::empty(codes, at::kByte),
                     at::empty(scale_sizes(format, sizes.vec(), parts), scale_type), parts);
}

PackedMatrix pack(const at::Tensor& w, PackedFormat format, at::ScalarType scale_type, int64_t parts) {
  const PackedMatrix m = empty_packed(format, w.sizes(), scale_type, parts);
  const at::Tensor stacked = w.view({m.num_matrices() * parts, m.rows() / parts, m.columns()});
  for (int64_t i = 0; i < stacked.size(0); ++i) {
    const QuantizedMatrix rounded =
        format == PackedFormat::kFp4
            ? quantize_fp4(stacked[i])
            : quantize_fp8(stacked[i], scale_type == at::kFloat ? ScaleType::kFp32 : ScaleType::kE8m0);
    const PackedMatrix::Part target = m.part(i / parts, i % parts);
    at::Tensor(target.codes).copy_(rounded.bytes);
    at::Tensor(target.scales).copy_(rounded.scale);
  }
  return m;
}

c10::IValue to_ivalue(const PackedMatrix& matrix) {
  return c10::IValue::make_capsule(c10::make_intrusive<PackedCapsule>(matrix));
}

PackedMatrix packed_of(const c10::IValue& value) {
  return static_cast<const PackedCapsule&>(*value.toCapsule()).matrix;
}

}  // namespace asterism::ops
