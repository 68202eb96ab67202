#pragma once

#include <optional>
#include <string>

#include "asterism/ops/packed_matrix.h"

namespace asterism::ops {

/// A weight as an operator takes it: a tensor in its storage type, which may be trained, or a packed constant.
struct Matrix {
  at::Tensor plain;  // undefined when packed
  std::optional<PackedMatrix> packed;

  Matrix() = default;
  Matrix(at::Tensor tensor) : plain(std::move(tensor)) {}  // implicit: a tensor is a weight
  Matrix(PackedMatrix matrix) : packed(std::move(matrix)) {}

  bool defined() const { return packed || plain.defined(); }
  std::vector<int64_t> sizes() const { return packed ? packed->sizes() : plain.sizes().vec(); }
  int64_t dim() const { return static_cast<int64_t>(sizes().size()); }
  int64_t size(int64_t d) const { return sizes().at(d); }
  /// The type of sums with it: fp64 for a weight in fp64 (in tests), otherwise fp32.
  at::ScalarType sum_type() const {
    return plain.defined() && plain.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  /// How it is kept: "fp32", "bf16", "fp8", "fp4", ..
  std::string storage() const;
  /// Memory of the weight.
  int64_t bytes() const { return packed ? packed->bytes() : static_cast<int64_t>(plain.nbytes()); }
  /// What autograd must see of it among the inputs of a node.
  std::optional<at::Tensor> input() const { return packed ? std::nullopt : std::optional(plain); }
  /// The values in `type`: a copy when packed, otherwise plain.to(type).
  at::Tensor to(at::ScalarType type) const { return packed ? packed->decode(type) : plain.to(type); }
};

}  // namespace asterism::ops
