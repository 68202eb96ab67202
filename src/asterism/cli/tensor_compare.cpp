#include "asterism/cli/tensor_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace asterism::cli {

namespace {

constexpr int64_t kSlice = int64_t{1} << 20;  // elements

bool is_integer(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

void compare_slice(const at::Tensor& a, const at::Tensor& b, const Tolerance& tolerance, TensorDifference& difference) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  // Exact for integers beyond 2^53 too.
  const at::Tensor same = is_integer(a) && is_integer(b) ? a.to(at::kLong).eq(b.to(at::kLong))
                                                         : x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor finite = x.isfinite().logical_and(y.isfinite());
  const at::Tensor zero = at::zeros({}, x.options());
  const at::Tensor infinity = at::full({}, std::numeric_limits<double>::infinity(), x.options());
  const at::Tensor distance = at::where(same, zero, at::where(finite, (x - y).abs(), infinity));
  const bool exact = is_integer(a) && is_integer(b);
  const at::Tensor allowed = exact ? zero : at::where(finite, y.abs() * tolerance.relative + tolerance.absolute, zero);
  difference.differing += (exact ? same.logical_not() : distance > allowed).sum().item<int64_t>();
  difference.max_absolute = std::max(difference.max_absolute, distance.max().item<double>());
  const at::Tensor relative = at::where(same, zero, at::where(finite, distance / at::max(x.abs(), y.abs()), infinity));
  difference.max_relative = std::max(difference.max_relative, relative.max().item<double>());
  difference.ab += x.dot(y).item<double>();
  difference.aa += x.dot(x).item<double>();
  difference.bb += y.dot(y).item<double>();
}

}  // namespace

double TensorDifference::cosine() const {
  if (aa == 0.0 && bb == 0.0) return 1.0;
  if (aa == 0.0 || bb == 0.0) return 0.0;
  return ab / (std::sqrt(aa) * std::sqrt(bb));
}

TensorDifference& TensorDifference::operator+=(const TensorDifference& next) {
  elements += next.elements;
  differing += next.differing;
  max_absolute = std::max(max_absolute, next.max_absolute);
  max_relative = std::max(max_relative, next.max_relative);
  ab += next.ab;
  aa += next.aa;
  bb += next.bb;
  return *this;
}

TensorDifference compare_tensors(const at::Tensor& a, const at::Tensor& b, const Tolerance& tolerance) {
  TORCH_CHECK(a.numel() == b.numel(), "[compare_tensors] sizes must agree, got ", a.sizes(), " and ", b.sizes());
  const at::Tensor x = a.view({-1}), y = b.view({-1});
  TensorDifference difference{.elements = a.numel()};
  for (int64_t begin = 0; begin < a.numel(); begin += kSlice) {
    const int64_t count = std::min(kSlice, a.numel() - begin);
    compare_slice(x.narrow(0, begin, count), y.narrow(0, begin, count), tolerance, difference);
  }
  return difference;
}

}  // namespace asterism::cli
