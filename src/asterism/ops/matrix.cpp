#include "asterism/ops/matrix.h"

namespace asterism::ops {

std::string Matrix::storage() const {
  if (packed) return packed->format == PackedFormat::kFp4 ? "fp4" : "fp8";
  switch (plain.scalar_type()) {
    case at::kDouble:
      return "fp64";
    case at::kFloat:
      return "fp32";
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    default:
      return "int64";
  }
}

}  // namespace asterism::ops
