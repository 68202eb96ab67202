#include "asterism/ops/exact_sum.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace asterism::ops {

namespace {

constexpr int kLimbBits = 32;
constexpr int kLowest = -298;  // exponent of the smallest square of an fp32 number, and of bit 0
// Every addition puts less than 2^32 into a limb: so many may pass between two carries.
constexpr int64_t kBetweenCarries = int64_t{1} << 29;

}  // namespace

// A square of an fp32 number is a double without rounding: 48 bits, times a power of two from 2^-298 on.
void ExactSquareSum::add_finite(double square) {
  int exponent = 0;
  const double fraction = std::frexp(square, &exponent);  // in [0.5, 1)
  const auto digits = static_cast<uint64_t>(std::ldexp(fraction, 53));
  const int position = exponent - 53 - kLowest;  // of the lowest digit; negative digits are zeros
  const uint64_t shifted_down = position < 0 ? digits >> -position : digits;
  const int limb = position < 0 ? 0 : position / kLimbBits;
  const auto wide = static_cast<unsigned __int128>(shifted_down) << (position < 0 ? 0 : position % kLimbBits);
  limbs_[limb] += static_cast<int64_t>(static_cast<uint32_t>(wide));
  limbs_[limb + 1] += static_cast<int64_t>(static_cast<uint32_t>(wide >> kLimbBits));
  limbs_[limb + 2] += static_cast<int64_t>(static_cast<uint32_t>(wide >> (2 * kLimbBits)));
}

void ExactSquareSum::add(const at::Tensor& values) {
  TORCH_CHECK(values.scalar_type() == at::kFloat && values.is_contiguous(),
              "[exact_sum] values must be fp32 and contiguous, got ", values.scalar_type());
  const float* data = values.const_data_ptr<float>();
  int64_t since_carry = 0;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float value = data[i];
    if (!std::isfinite(value)) {
      ++limbs_[kLimbs];
    } else if (value != 0.0F) {
      add_finite(static_cast<double>(value) * static_cast<double>(value));
    }
    if (++since_carry == kBetweenCarries) {
      carry();
      since_carry = 0;
    }
  }
  carry();
}

// Leaves every limb but the highest in [0, 2^32): one way only to write a sum.
void ExactSquareSum::carry() {
  for (int i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> kLimbBits;
    limbs_[i] &= (int64_t{1} << kLimbBits) - 1;
  }
}

at::Tensor ExactSquareSum::limbs() const {
  const at::Tensor tensor = at::empty({kLimbs + 1}, at::kLong);
  std::memcpy(tensor.mutable_data_ptr(), limbs_.data(), sizeof(limbs_));
  return tensor;
}

void ExactSquareSum::set_limbs(const at::Tensor& limbs) {
  TORCH_CHECK(limbs.scalar_type() == at::kLong && limbs.numel() == kLimbs + 1 && limbs.is_contiguous(),
              "[exact_sum] expected ", kLimbs + 1, " limbs of int64, got ", limbs.sizes());
  std::memcpy(limbs_.data(), limbs.const_data_ptr(), sizeof(limbs_));
  carry();
}

void ExactSquareSum::add_limbs(const ExactSquareSum& other) {
  for (size_t i = 0; i < limbs_.size(); ++i) limbs_[i] += other.limbs_[i];
  carry();
}

double ExactSquareSum::value() const {
  if (limbs_[kLimbs] > 0) return std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (int i = kLimbs - 1; i >= 0; --i) sum += std::ldexp(static_cast<double>(limbs_[i]), i * kLimbBits + kLowest);
  return sum;
}

}  // namespace asterism::ops
