#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace asterism::ops {

enum class PackedFormat {
  kFp8,  // e4m3, one scale per 128 x 128 block (model-spec 6.2): 8 bits and 8 / 16384 (fp32 scales: 32 / 16384)
  kFp4,  // e2m1, one e8m0 scale per 32 columns (6.3): 4.25 bits
};

/// A part of one matrix: where to decode.
struct Tile {
  int64_t first_row, rows;
  int64_t first_column, columns;  // FP4: both even
};

/// A matrix [N, K], or one per expert [E, N, K], kept as codes and scales, as released. A constant: nothing here is
/// differentiable. Made by make_packed, which checks it; the tensors are contiguous and shared, never written to.
struct PackedMatrix {
  PackedFormat format = PackedFormat::kFp8;
  at::Tensor codes;       // uint8: [.., N, K], or FP4 [.., N, K / 2], the lower half of a byte is the even column
  at::Tensor scales;      // FP8: uint8 (e8m0) or fp32 [.., parts * ceil(N / parts / 128), ceil(K / 128)]; FP4: uint8
                          // [.., N, K / 32]
  int64_t parts = 1;      // matrices that lie above each other, each with blocks of its own: gate and up
  int64_t first_row = 0;  // row of the blocks at which the codes begin: not 0 in what `rows_of` returns

  int64_t num_matrices() const { return codes.dim() == 3 ? codes.size(0) : 1; }
  int64_t rows() const { return codes.size(-2); }
  int64_t columns() const { return format == PackedFormat::kFp4 ? 2 * codes.size(-1) : codes.size(-1); }
  /// [N, K] or [E, N, K].
  std::vector<int64_t> sizes() const;
  /// Memory of codes and scales.
  int64_t bytes() const;

  /// Rows first .. first + count - 1 of a matrix [N, K] of one part, sharing its memory.
  PackedMatrix rows_of(int64_t first, int64_t count) const;

  /// One of the parts of one matrix: views [N / parts, ..] of the codes and of its scales.
  struct Part {
    at::Tensor codes, scales;
  };
  Part part(int64_t matrix, int64_t part) const;

  /// A tile of matrix number `matrix` into `out` [rows, columns], contiguous, fp32, fp64 or bf16; every value is
  /// rounded once, which changes it only where an FP8 code with an fp32 scale becomes bf16.
  void decode_tile(int64_t matrix, const Tile& tile, const at::Tensor& out) const;
  /// All of it in memory of its own, in `type`: for masters, merging and export, never for a forward pass. On the meta
  /// device, where codes have no values, neither has the result.
  at::Tensor decode(at::ScalarType type) const;
};

/// Checks types and shapes (an error names what does not fit). FP8 codes may have the type uint8 or float8_e4m3fn,
/// e8m0 scales uint8 or float8_e8m0fnu, FP4 codes uint8 or int8: the bytes are taken as they are.
PackedMatrix make_packed(PackedFormat format, const at::Tensor& codes, const at::Tensor& scales, int64_t parts = 1);

/// Memory for a matrix of this shape, to be filled part by part. scale_type: uint8 (e8m0), or fp32 for FP8.
PackedMatrix empty_packed(PackedFormat format, at::IntArrayRef sizes, at::ScalarType scale_type, int64_t parts = 1);

/// A floating matrix [N, K] or [E, N, K] rounded to the format (ops/quantize.h).
PackedMatrix pack(const at::Tensor& w, PackedFormat format, at::ScalarType scale_type, int64_t parts = 1);

/// For an autograd node to keep between its passes.
c10::IValue to_ivalue(const PackedMatrix& matrix);
PackedMatrix packed_of(const c10::IValue& value);

}  // namespace asterism::ops
