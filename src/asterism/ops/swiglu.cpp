#include "asterism/ops/swiglu.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "asterism/ops/cpu/swiglu_kernel.h"
#include "asterism/ops/dense.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSwigluGrain = 16384;

int64_t swiglu_grain_rows(int64_t width) {
  return std::max<int64_t>(1, kSwigluGrain / width);
}

template <typename T>
at::Tensor activate_swiglu(const at::Tensor& gate_up_RJ, const at::Tensor& row_weight_R, double limit) {
  const int64_t rows = gate_up_RJ.size(0), width = gate_up_RJ.size(1) / 2;
  at::Tensor out = at::empty({rows, width}, gate_up_RJ.options());
  const cpu::SwigluArgs<T> args{.gate_up = data_or_null<T>(gate_up_RJ),
                                .row_weight = data_or_null<T>(row_weight_R),
                                .out = out.mutable_data_ptr<T>(),
                                .width = width,
                                .limit = static_cast<T>(limit)};
  at::parallel_for(0, rows, swiglu_grain_rows(width),
                   [&](int64_t begin, int64_t end) { cpu::swiglu_rows(args, begin, end); });
  return out;
}

template <typename T>
SwigluGradients differentiate_swiglu(const at::Tensor& grad_out, const at::Tensor& gate_up_RJ,
                                     const at::Tensor& row_weight_R, double limit, bool want_gate_up,
                                     bool want_row_weight) {
  const int64_t rows = gate_up_RJ.size(0), width = gate_up_RJ.size(1) / 2;
  SwigluGradients grads;
  if (want_gate_up) grads.gate_up = at::empty_like(gate_up_RJ);
  if (want_row_weight) grads.row_weight = at::empty_like(row_weight_R);
  const cpu::SwigluGradArgs<T> args{
      .grad_out = data_or_null<T>(grad_out),
      .gate_up = data_or_null<T>(gate_up_RJ),
      .row_weight = data_or_null<T>(row_weight_R),
      .grad_gate_up = want_gate_up ? grads.gate_up.mutable_data_ptr<T>() : nullptr,
      .grad_row_weight = want_row_weight ? grads.row_weight.mutable_data_ptr<T>() : nullptr,
      .width = width,
      .limit = static_cast<T>(limit)};
  at::parallel_for(0, rows, swiglu_grain_rows(width),
                   [&](int64_t begin, int64_t end) { cpu::swiglu_grad_rows(args, begin, end); });
  return grads;
}

double clamp_bound(double limit) {
  return limit > 0 ? limit : std::numeric_limits<double>::infinity();
}

// Own node: saves its inputs only, where a composition keeps the clamped halves and the sigmoid alive.
struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up_RJ,
                            const std::optional<at::Tensor>& row_weight_R, double limit) {
    ctx->save_for_backward({gate_up_RJ, row_weight_R.value_or(at::Tensor())});
    ctx->saved_data["limit"] = limit;
    return swiglu_values(gate_up_RJ, row_weight_R.value_or(at::Tensor()), limit);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& row_weight = saved[1];
    const SwigluGradients result =
        swiglu_gradients(grads[0], saved[0], row_weight, ctx->saved_data["limit"].toDouble(), ctx->needs_input_grad(0),
                         row_weight.defined() && ctx->needs_input_grad(1));
    return {result.gate_up, result.row_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor swiglu_values(const at::Tensor& gate_up_RJ, const at::Tensor& row_weight_R, double limit) {
  const at::ScalarType type = sum_type(gate_up_RJ.scalar_type());
  const auto run = type == at::kDouble ? activate_swiglu<double> : activate_swiglu<float>;
  const at::Tensor weight = row_weight_R.defined() ? dense(row_weight_R, type) : at::Tensor();
  return run(dense(gate_up_RJ, type), weight, clamp_bound(limit)).to(gate_up_RJ.scalar_type());
}

SwigluGradients swiglu_gradients(const at::Tensor& grad_RI, const at::Tensor& gate_up_RJ,
                                 const at::Tensor& row_weight_R, double limit, bool want_gate_up,
                                 bool want_row_weight) {
  const at::ScalarType type = sum_type(gate_up_RJ.scalar_type());
  const auto run = type == at::kDouble ? differentiate_swiglu<double> : differentiate_swiglu<float>;
  const at::Tensor weight = row_weight_R.defined() ? dense(row_weight_R, type) : at::Tensor();
  SwigluGradients grads =
      run(dense(grad_RI, type), dense(gate_up_RJ, type), weight, clamp_bound(limit), want_gate_up, want_row_weight);
  if (want_gate_up) grads.gate_up = grads.gate_up.to(gate_up_RJ.scalar_type());
  if (want_row_weight) grads.row_weight = grads.row_weight.to(row_weight_R.scalar_type());
  return grads;
}

at::Tensor swiglu(const at::Tensor& gate_up_RJ, const at::Tensor& row_weight_R, double limit) {
  TORCH_CHECK(gate_up_RJ.dim() == 2 && gate_up_RJ.size(1) > 0 && gate_up_RJ.size(1) % 2 == 0,
              "[swiglu] gate_up must be [R, 2 I] with I > 0, got ", gate_up_RJ.sizes());
  TORCH_CHECK(gate_up_RJ.is_floating_point(), "[swiglu] gate_up must be fp32, fp64 or bf16, got ",
              gate_up_RJ.scalar_type());
  if (!row_weight_R.defined()) return Swiglu::apply(gate_up_RJ, std::optional<at::Tensor>(), limit);
  TORCH_CHECK(row_weight_R.dim() == 1 && row_weight_R.size(0) == gate_up_RJ.size(0), "[swiglu] row_weight must be [",
              gate_up_RJ.size(0), "], got ", row_weight_R.sizes());
  return Swiglu::apply(gate_up_RJ, std::optional<at::Tensor>(row_weight_R), limit);
}

}  // namespace asterism::ops
