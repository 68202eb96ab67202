#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/checkpoint/shards.h"

namespace asterism::checkpoint {

/// How the values of a tensor are written down (model-spec 6.2, 6.3).
struct Form {
  enum class Coding {
    kPlain,  // one number of `dtype` per value
    kFp8,    // e4m3, a scale per 128 x 128 block
    kFp4,    // two e2m1 per byte, low half first, a scale per 32 columns
  };
  Coding coding = Coding::kPlain;
  at::ScalarType dtype = at::kFloat;           // of the stored tensor
  at::ScalarType scale = at::kFloat8_e8m0fnu;  // of its scales, F8_E8M0 or F32; meaningless for kPlain

  static Form plain(at::ScalarType dtype) { return {.dtype = dtype}; }
  static Form fp8(at::ScalarType scale = at::kFloat8_e8m0fnu) { return {Coding::kFp8, at::kFloat8_e4m3fn, scale}; }
  static Form fp4() { return {Coding::kFp4, at::kChar, at::kFloat8_e8m0fnu}; }

  bool is_coded() const { return coding != Coding::kPlain; }
  /// The same values from the same bytes, whatever type a file gives to bytes.
  bool operator==(const Form& other) const;
  /// "BF16", "FP8 (F32 scales)", "FP4".
  std::string text() const;

  /// Shape of the stored tensor for values [..., N, K].
  std::vector<int64_t> stored_shape(std::vector<int64_t> shape) const;
  /// Shape of the scales. Packed experts [E, M * N, K] hold `matrices` M matrices above each other, and a block of FP8
  /// never reaches from one into the next.
  std::vector<int64_t> scale_shape(std::vector<int64_t> shape, int64_t matrices = 1) const;
};

/// A tensor of a checkpoint as its files hold it: one stored tensor, or codes and their scales.
struct StoredTensor {
  std::string name;             // as stored, of the codes
  std::string scale_name = {};  // as stored; "" for kPlain
  Form form = {};
  std::vector<int64_t> shape = {};  // of the values

  bool is_packed() const { return shape.size() == 3; }
};

/// All tensors of a source, in the order of their names. dtype and shape decide what is coded, never the name: F8_E4M3,
/// and I8 and U8 of a matrix, need the scales beside them: "<x>.scale" or "<x>.weight_scale_inv" for "<x>.weight",
/// "<x>_scale_inv" for packed experts "<x>". Scales of U8 are e8m0.
/// Scales without a weight, weights without scales, and scales of the wrong type or shape are added to `problems`, for
/// the names that models have; other tensors are plain.
std::vector<StoredTensor> stored_tensors(const Source& source, ProblemList& problems);

/// The bytes of a matrix: views of the mapped file.
struct StoredMatrix {
  Form form;
  at::Tensor data;   // plain values, or codes as uint8: [N, K], or [N, K / 2] for FP4; packed experts one more in front
  at::Tensor scale;  // fp32, or uint8 (e8m0); undefined for kPlain

  /// Matrix number `matrix` of `matrices` of one expert of packed experts.
  StoredMatrix part(int64_t expert, int64_t matrix, int64_t matrices) const;
};

StoredMatrix stored_matrix(const Source& source, const StoredTensor& tensor);

/// Writes the values of a tensor of any number of dimensions (a matrix, if it is coded) into `out`: code * scale in
/// fp32, rounded to the type of `out`.
void decode_into(const StoredMatrix& stored, const at::Tensor& out);

/// F64, F32, F16 or BF16.
bool is_plain_float(at::ScalarType type);

/// The narrowest plain type that holds the values of a form exactly.
at::ScalarType exact_dtype(const Form& form);

}  // namespace asterism::checkpoint
