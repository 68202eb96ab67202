#include "asterism/ops/compressor.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/column_sum.h"
#include "asterism/ops/cpu/compressor_kernel.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The stream's index of every token that is in a window, window after window: [C * ratio]. Tokens of a dropped tail are
// not in it, so nothing of them can reach a result.
at::Tensor window_tokens(const Windows& windows) {
  return (windows.first_token_C.unsqueeze(1) + at::arange(windows.ratio, at::kLong).unsqueeze(0)).reshape({-1});
}

// Turns the pairs of the last 2 * cos.size(1) channels; sign -1 turns back.
at::Tensor turn_pairs(const at::Tensor& x_CP, const at::Tensor& cos, const at::Tensor& sin, double sign) {
  const int64_t num_entries = x_CP.size(0), width = 2 * cos.size(1), plain = x_CP.size(1) - width;
  const at::Tensor pairs = x_CP.narrow(1, plain, width).reshape({num_entries, width / 2, 2});
  const at::Tensor a = pairs.select(2, 0), b = pairs.select(2, 1), signed_sin = sin * sign;
  const at::Tensor turned = at::stack({a * cos - b * signed_sin, a * signed_sin + b * cos}, 2);
  return at::cat({x_CP.narrow(1, 0, plain), turned.reshape({num_entries, width})}, 1);
}

// value and score [C, ratio, co c] of the windows' tokens.
template <typename T>
cpu::PoolArgs<T> pool_args(const at::Tensor& value, const at::Tensor& score, const at::Tensor& has_previous_C,
                           bool overlap, const at::Tensor& entry_CP) {
  return {.value = value.const_data_ptr<T>(),
          .score = score.const_data_ptr<T>(),
          .has_previous = has_previous_C.const_data_ptr<bool>(),
          .ratio = value.size(1),
          .channels = entry_CP.size(1),
          .overlap = overlap,
          .entry = entry_CP.mutable_data_ptr<T>()};
}

at::Tensor inverse_rms(const at::Tensor& x_CP, double eps) {
  return at::rsqrt(x_CP.square().mean(1, true) + eps);
}

// One node from the projections to the rotated entries: the softmax over the slots is made again in the backward, so
// only the windows' rows are kept, not the copies of a composition.
struct CompressFunction : torch::autograd::Function<CompressFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& u_TJ, const at::Tensor& gate_TJ,
                            const at::Tensor& ape, const at::Tensor& norm, const Windows& windows, bool overlap,
                            const RopeTable& table, double eps) {
    const at::ScalarType type = u_TJ.scalar_type();
    const int64_t num_entries = windows.num_entries(), width = u_TJ.size(1);
    const at::Tensor token = window_tokens(windows);
    const at::Tensor value = u_TJ.index_select(0, token).view({num_entries, windows.ratio, width});
    at::Tensor score = gate_TJ.index_select(0, token).view({num_entries, windows.ratio, width});
    score.add_(ape);
    const at::Tensor entry_CP = at::empty({num_entries, norm.size(0)}, value.options());
    AT_DISPATCH_FLOATING_TYPES(type, "compress", [&] {
      const auto args = pool_args<scalar_t>(value, score, windows.has_previous_C, overlap, entry_CP);
      at::parallel_for(0, num_entries, 1, [&](int64_t begin, int64_t end) { cpu::pool_windows(args, begin, end); });
    });
    const at::Tensor cos = table.cos.to(type), sin = table.sin.to(type);
    ctx->save_for_backward({ape, norm, value, score, entry_CP});
    ctx->saved_data["num_tokens"] = u_TJ.size(0);
    ctx->saved_data["token"] = token;
    ctx->saved_data["has_previous"] = windows.has_previous_C;
    ctx->saved_data["cos"] = cos;
    ctx->saved_data["sin"] = sin;
    ctx->saved_data["overlap"] = overlap;
    ctx->saved_data["eps"] = eps;
    const at::Tensor normed_CP = entry_CP * inverse_rms(entry_CP, eps) * norm.to(type);
    return turn_pairs(normed_CP, cos, sin, 1.0);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &ape = saved[0], &norm = saved[1], &value = saved[2], &score = saved[3], &entry_CP = saved[4];
    const at::ScalarType type = value.scalar_type();
    const int64_t num_entries = value.size(0), num_rows = num_entries * value.size(1), width = value.size(2);
    const at::Tensor token = ctx->saved_data["token"].toTensor();

    const at::Tensor grad_normed =
        turn_pairs(grads[0], ctx->saved_data["cos"].toTensor(), ctx->saved_data["sin"].toTensor(), -1.0);
    const at::Tensor rstd = inverse_rms(entry_CP, ctx->saved_data["eps"].toDouble());
    const at::Tensor unit = entry_CP * rstd, grad_unit = grad_normed * norm.to(type);
    const at::Tensor grad_entry = (rstd * (grad_unit - unit * (grad_unit * unit).mean(1, true))).contiguous();

    const at::Tensor grad_value = at::zeros_like(value), grad_score = at::zeros_like(score);
    AT_DISPATCH_FLOATING_TYPES(type, "compress_grad", [&] {
      const cpu::PoolGradArgs<scalar_t> args{
          .forward = pool_args<scalar_t>(value, score, ctx->saved_data["has_previous"].toTensor(),
                                         ctx->saved_data["overlap"].toBool(), entry_CP),
          .grad_entry = grad_entry.const_data_ptr<scalar_t>(),
          .grad_value = grad_value.mutable_data_ptr<scalar_t>(),
          .grad_score = grad_score.mutable_data_ptr<scalar_t>()};
      at::parallel_for(0, num_entries, 1,
                       [&](int64_t begin, int64_t end) { cpu::pool_windows_grad(args, begin, end); });
    });

    // Tokens of a dropped tail are in no window and get zeros.
    const auto spread = [&](const at::Tensor& rows) {
      return at::zeros({ctx->saved_data["num_tokens"].toInt(), width}, rows.options())
          .index_copy_(0, token, rows.view({num_rows, width}));
    };
    variable_list result(8);
    if (ctx->needs_input_grad(0)) result[0] = spread(grad_value);
    if (ctx->needs_input_grad(1)) result[1] = spread(grad_score);
    if (ctx->needs_input_grad(2)) {
      result[2] = column_sum(grad_score.view({num_entries, ape.numel()})).view(ape.sizes()).to(ape.scalar_type());
    }
    if (ctx->needs_input_grad(3)) result[3] = column_sum(grad_normed * unit).to(norm.scalar_type());
    return result;
  }
};

}  // namespace

at::Tensor compress(const at::Tensor& u_TJ, const at::Tensor& gate_TJ, const at::Tensor& ape, const at::Tensor& norm,
                    const Documents& documents, const Windows& windows, bool overlap, const RopeTable& table_C,
                    double eps) {
  TORCH_CHECK(norm.dim() == 1, "[compress] norm must be [c], got ", norm.sizes());
  const int64_t width = (overlap ? 2 : 1) * norm.size(0);
  const std::vector<int64_t> projection{documents.num_tokens(), width};
  TORCH_CHECK(u_TJ.sizes() == at::IntArrayRef(projection), "[compress] u must be ", projection, ", got ", u_TJ.sizes());
  TORCH_CHECK(gate_TJ.sizes() == at::IntArrayRef(projection) && gate_TJ.scalar_type() == u_TJ.scalar_type(),
              "[compress] gate must be ", projection, " of the type of u, got ", gate_TJ.sizes());
  TORCH_CHECK(ape.dim() == 2 && ape.size(0) == windows.ratio && ape.size(1) == width, "[compress] ape must be [",
              windows.ratio, ", ", width, "], got ", ape.sizes());
  TORCH_CHECK(windows.offsets.size() == documents.offsets.size(), "[compress] windows of ", windows.offsets.size() - 1,
              " documents do not belong to ", documents.num_documents(), " documents");
  TORCH_CHECK(table_C.cos.dim() == 2 && table_C.cos.size(0) == windows.num_entries() &&
                  2 * table_C.cos.size(1) <= norm.size(0) && table_C.sin.sizes() == table_C.cos.sizes(),
              "[compress] the rotation table must be [", windows.num_entries(), ", at most ", norm.size(0) / 2,
              "], got ", table_C.cos.sizes());
  return CompressFunction::apply(u_TJ, gate_TJ, ape, norm, windows, overlap, table_C, eps);
}

}  // namespace asterism::ops
