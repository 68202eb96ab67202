#include "asterism/ops/rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>

#include "asterism/ops/rotation.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Index of the channel pair that turns `rotations` times over the original context length (YaRN).
double pair_of_rotations(const RopeConfig& config, double rotations) {
  return static_cast<double>(config.width) *
         std::log(config.original_max_positions / (2.0 * std::numbers::pi * rotations)) /
         (2.0 * std::log(config.theta));
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table, bool inverse) {
  const at::Tensor in = x.contiguous(), out = at::empty_like(in);
  for_rotated_rows(in, table, inverse,
                   [&]<typename S, typename T>(S, const cpu::Rotation<T>& rotation, int64_t begin, int64_t end) {
                     cpu::rotate_rows<S, T>(rotation, values_of<S>(in), results_of<S>(out), begin, end);
                   });
  return out;
}

// Own node: saves the table only; the gradient is the opposite rotation.
struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            bool inverse) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["inverse"] = inverse;
    return rotate(x, {cos, sin}, inverse);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {rotate(grads[0], {saved[0], saved[1]}, !ctx->saved_data["inverse"].toBool()), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor rope_frequencies(const RopeConfig& config) {
  TORCH_CHECK(config.width > 0 && config.width % 2 == 0, "[rope] the number of rotating channels must be even, got ",
              config.width);
  at::Tensor frequencies = at::empty({config.width / 2}, at::kDouble);
  double* f = frequencies.mutable_data_ptr<double>();
  const double width = static_cast<double>(config.width);
  for (int64_t i = 0; i < config.width / 2; ++i) f[i] = std::pow(config.theta, -2.0 * static_cast<double>(i) / width);
  if (!config.yarn) return frequencies;
  const double low = std::max(std::floor(pair_of_rotations(config, config.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of_rotations(config, config.beta_slow)), width - 1.0);
  if (low == high) high += 0.001;
  for (int64_t i = 0; i < config.width / 2; ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / config.factor * ramp + f[i] * (1.0 - ramp);
  }
  return frequencies;
}

RopeTable make_rope_table(const RopeConfig& config, const at::Tensor& position_M, at::ScalarType dtype) {
  TORCH_CHECK(position_M.dim() == 1, "[rope] positions must be [M], got ", position_M.sizes());
  const at::Tensor angle = position_M.to(at::kDouble).unsqueeze(1) * rope_frequencies(config).unsqueeze(0);
  return {angle.cos().to(dtype), angle.sin().to(dtype)};
}

void check_rope(const char* op, const at::Tensor& x, const RopeTable& table) {
  TORCH_CHECK((x.dim() == 2 || x.dim() == 3) && x.size(-1) > 0, "[", op, "] x must be [M, P] or [M, H, P], got ",
              x.sizes());
  TORCH_CHECK(table.cos.dim() == 2 && table.cos.sizes() == table.sin.sizes() && table.cos.size(0) == x.size(0) &&
                  2 * table.cos.size(1) <= x.size(-1),
              "[", op, "] the table must be [", x.size(0), ", width / 2] with width <= ", x.size(-1), ", got cos ",
              table.cos.sizes(), " and sin ", table.sin.sizes());
}

at::Tensor rope(const at::Tensor& x, const RopeTable& table, bool inverse) {
  check_rope("rope", x, table);
  return Rope::apply(x, table.cos, table.sin, inverse);
}

}  // namespace asterism::ops
