#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace asterism::cli {

struct Tolerance {
  double relative = 0.0, absolute = 0.0;
};

/// How two tensors of one shape differ. NaN equals NaN and infinities equal themselves.
struct TensorDifference {
  int64_t elements = 0;
  int64_t differing = 0;                // elements with |a - b| > absolute + relative * |b|, or finite on one side only
  double max_absolute = 0.0;            // largest |a - b|; infinite where just one side is finite
  double max_relative = 0.0;            // largest |a - b| / max(|a|, |b|)
  double ab = 0.0, aa = 0.0, bb = 0.0;  // dot products

  /// Of the two as vectors; 1 when both are zero, 0 when one is. NaN when not finite.
  double cosine() const;
  /// The difference of two tensors that follow these.
  TensorDifference& operator+=(const TensorDifference& next);
};

/// Compares in fp64, a slice at a time, so that memory stays bounded whatever the size. Integers are compared exactly,
/// whatever the tolerance. Dtypes may differ; the tensors must be contiguous and of the same number of elements.
TensorDifference compare_tensors(const at::Tensor& a, const at::Tensor& b, const Tolerance& tolerance);

}  // namespace asterism::cli
