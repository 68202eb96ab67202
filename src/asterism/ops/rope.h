#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace asterism::ops {

/// Rotary embedding of one kind of layer (model-spec 2.2). With `yarn` the frequencies are interpolated for every
/// length, not only beyond the original one; the magnitude factor is always 1.
struct RopeConfig {
  int64_t width = 64;  // rotating channels, even
  double theta = 10000.0;
  bool yarn = false;
  double factor = 1.0;
  double original_max_positions = 65536.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
};

/// cos and sin [M, width / 2] at the positions; angles in fp64, stored in `dtype` (fp32 or fp64).
struct RopeTable {
  at::Tensor cos, sin;
};

/// Frequencies f_i, fp64 [width / 2].
at::Tensor rope_frequencies(const RopeConfig& config);

RopeTable make_rope_table(const RopeConfig& config, const at::Tensor& position_M, at::ScalarType dtype);

/// Turns the interleaved pairs (2i, 2i + 1) of the last `width` channels: (a, b) -> (a c - b s, a s + b c); `inverse`
/// turns by the negative angle. x [M, P] or [M, H, P] with P >= width; a new tensor of the same shape and type,
/// arithmetic in fp32 (fp64 for fp64). Differentiable in x: the gradient is the opposite rotation.
at::Tensor rope(const at::Tensor& x, const RopeTable& table, bool inverse = false);

/// Throws, in the name of `op`, when the table does not fit x as described above.
void check_rope(const char* op, const at::Tensor& x, const RopeTable& table);

}  // namespace asterism::ops
