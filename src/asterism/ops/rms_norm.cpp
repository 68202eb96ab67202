#include "asterism/ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/cpu/rms_norm_kernel.h"
#include "asterism/ops/dense.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrainElements = 32768;
// The weight's gradient is summed in this many blocks of rows, whatever the number of threads.
constexpr int64_t kMaxRowBlocks = 64;

struct Normalized {
  at::Tensor out, rstd_R;
};

template <typename T>
Normalized normalize(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const Normalized result{at::empty_like(x), at::empty({rows}, x.options())};
  const cpu::RmsNormArgs<T> args{.x = data_or_null<T>(x),
                                 .weight = data_or_null<T>(weight),
                                 .out = result.out.mutable_data_ptr<T>(),
                                 .rstd = result.rstd_R.mutable_data_ptr<T>(),
                                 .n = n,
                                 .eps = eps};
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrainElements / n),
                   [&](int64_t begin, int64_t end) { cpu::rms_norm_rows(args, begin, end); });
  return result;
}

struct Gradients {
  at::Tensor x, weight;
};

template <typename T>
Gradients differentiate(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& rstd_R, bool want_x, bool want_weight) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const int64_t block = std::max<int64_t>(1, (rows + kMaxRowBlocks - 1) / kMaxRowBlocks);
  const int64_t num_blocks = (rows + block - 1) / block;
  Gradients grads;
  if (want_x) grads.x = at::empty_like(x);
  at::Tensor partial_weight;
  if (want_weight) partial_weight = at::zeros({num_blocks, n}, x.options());
  const cpu::RmsNormGradArgs<T> args{.grad_out = data_or_null<T>(grad_out),
                                     .x = data_or_null<T>(x),
                                     .weight = data_or_null<T>(weight),
                                     .rstd = data_or_null<T>(rstd_R),
                                     .grad_x = want_x ? grads.x.mutable_data_ptr<T>() : nullptr,
                                     .n = n};
  T* partial = want_weight ? partial_weight.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* grad_weight = partial != nullptr ? partial + b * n : nullptr;
      cpu::rms_norm_grad_rows(args, b * block, std::min(rows, (b + 1) * block), grad_weight);
    }
  });
  if (want_weight) grads.weight = partial_weight.sum(0);
  return grads;
}

// Own node: saves x and one number per row, where a composition keeps the normalised rows too.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            double eps) {
    const at::ScalarType type = sum_type(x.scalar_type());
    const at::Tensor rows = dense(x, type);
    const at::Tensor scale = weight ? dense(*weight, type) : at::Tensor();
    const Normalized result =
        type == at::kDouble ? normalize<double>(rows, scale, eps) : normalize<float>(rows, scale, eps);
    ctx->save_for_backward({x, weight.value_or(at::Tensor()), result.rstd_R});
    return result.out.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd_R = saved[2];
    const bool want_x = ctx->needs_input_grad(0), want_weight = weight.defined() && ctx->needs_input_grad(1);
    const at::ScalarType type = sum_type(x.scalar_type());
    const at::Tensor scale = weight.defined() ? dense(weight, type) : at::Tensor();
    const auto run = type == at::kDouble ? differentiate<double> : differentiate<float>;
    const Gradients result = run(dense(grads[0], type), dense(x, type), scale, rstd_R, want_x, want_weight);
    return {want_x ? result.x.to(x.scalar_type()) : at::Tensor(),
            want_weight ? result.weight.to(weight.scalar_type()) : at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) > 0, "[rms_norm] x must be [..., n] with n > 0, got ", x.sizes());
  TORCH_CHECK(x.is_floating_point(), "[rms_norm] x must be fp32, fp64 or bf16, got ", x.scalar_type());
  if (!weight.defined()) return RmsNorm::apply(x, std::optional<at::Tensor>(), eps);
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == x.size(-1), "[rms_norm] weight must be [", x.size(-1), "], got ",
              weight.sizes());
  return RmsNorm::apply(x, std::optional<at::Tensor>(weight), eps);
}

}  // namespace asterism::ops
