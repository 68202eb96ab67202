#pragma once

#include <ATen/ATen.h>

namespace asterism::bench {

/// What this process gets from the machine with the threads that it has: the yardstick of all other figures, taken in
/// the same process because a machine that is shared or hot is a slower machine.
struct MachinePeak {
  double fp32_flops = 0.0, bf16_flops = 0.0;  // FLOP/s of square products, ops::matmul_nt
  double bytes = 0.0;                         // B/s of a triad

  double flops(at::ScalarType type) const { return type == at::kBFloat16 ? bf16_flops : fp32_flops; }
};

/// Best of several products of square matrices of 1024, 2048 and 3072, as hf_baseline.py measures torch.mm; FLOP/s.
double product_peak(at::ScalarType type);

/// Best of several a = b + s c over 256 MB each: bytes that are read and written, per second. That writing reads the
/// line first is not counted.
double bandwidth_peak();

MachinePeak measure_peak();

}  // namespace asterism::bench
