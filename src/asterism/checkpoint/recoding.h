#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "asterism/checkpoint/stored_tensor.h"

namespace asterism::checkpoint {

/// What a change of form did to values.
struct RecodingLoss {
  int64_t values = 0;
  int64_t changed = 0;            // values that are not the same afterwards
  int64_t vanished = 0;           // of them, those that became 0
  double largest_relative = 0.0;  // |after - before| / |before| of those that did not become 0

  RecodingLoss& operator+=(const RecodingLoss& other);
};

/// Bytes of `rows` rows of a matrix in a form: of the codes or values, and of the scales. `rows` are counted from the
/// first row of a block.
uint64_t data_bytes(const Form& form, int64_t rows, int64_t columns);
uint64_t scale_bytes(const Form& form, int64_t rows, int64_t columns);

/// Rows of a matrix where they lie.
struct MatrixBytes {
  const std::byte* data = nullptr;
  const std::byte* scale = nullptr;  // of the block of the first row; null for plain forms
};

/// Whether recoding can lose nothing, so that nothing need be measured: the same form, or FP32 out of less.
bool is_lossless(const Form& from, const Form& to);

/// Rewrites rows of matrices from one form into another, the same value for value where the form allows it: FP4 becomes
/// FP8 by model-spec 6.3, everything else through fp32. One object per thread: it keeps its buffers.
class Recoder {
 public:
  /// The first of the `rows` rows begins a block. Returns what was lost; with `measure` false only the number of
  /// values. RunError for values that FP8 and FP4 cannot hold, NaN and infinities, and for types that are not floating;
  /// the caller says where.
  RecodingLoss recode(const Form& from, const MatrixBytes& in, const Form& to, std::byte* data, std::byte* scale,
                      int64_t rows, int64_t columns, bool measure = true);

  /// Rows of fp32 values in a form.
  static void encode(const float* values, const Form& to, std::byte* data, std::byte* scale, int64_t rows,
                     int64_t columns);

  /// The values of rows in a floating form.
  static void decode(const Form& form, const MatrixBytes& in, int64_t rows, int64_t columns, float* out);

 private:
  std::vector<float> values_, again_;
};

}  // namespace asterism::checkpoint
