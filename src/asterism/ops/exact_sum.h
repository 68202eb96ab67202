#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>

namespace asterism::ops {

/// A sum of squares of fp32 numbers without any rounding: the result is the same in every order, however the numbers
/// are cut into parts. A fixed-point number as wide as the range of fp32 squares, in limbs of 32 bits kept in int64
/// (the small superaccumulator of Neal 2015, "Fast exact summation using small and large superaccumulators").
class ExactSquareSum {
 public:
  /// Adds the squares of `values`, fp32 and contiguous.
  void add(const at::Tensor& values);

  /// For the exchange between ranks: the limbs as int64 [n]. Limbs of up to 2^30 ranks may be added as integers before
  /// they are put back.
  at::Tensor limbs() const;
  void set_limbs(const at::Tensor& limbs);
  void add_limbs(const ExactSquareSum& other);

  /// The sum, rounded to fp64 limb by limb, which is the same every time; inf when inf or NaN was added.
  double value() const;

 private:
  static constexpr int kLimbs = 20;  // 2^-298 .. 2^256, and room for 2^48 summands
  void carry();
  void add_finite(double square);

  std::array<int64_t, kLimbs + 1> limbs_ = {};  // the last one counts what is not finite
};

}  // namespace asterism::ops
