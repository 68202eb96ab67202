#include "asterism/ops/hyper_connection.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/column_sum.h"
#include "asterism/ops/cpu/hyper_connection_kernel.h"
#include "asterism/ops/dense.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTokenGrain = 16;

template <typename T>
T* optional_result(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<T>() : nullptr;
}

// What forward and backward of a collapse share, all of one type (fp32 or fp64) and dense.
struct Collapse {
  at::Tensor x_TND, fn, base, scale;
  at::Tensor product_TM, norm_T;  // fn times the streams, and the factor that normalises the streams
  HyperConnectionConfig config;

  int64_t num_tokens() const { return x_TND.size(0); }
  int64_t num_streams() const { return x_TND.size(1); }
  int64_t dim() const { return x_TND.size(2); }
  int64_t width() const { return num_streams() * dim(); }
  bool has_mix() const { return fn.size(0) > num_streams(); }

  template <typename T>
  cpu::StreamLogits<T> logits() const {
    return {.product = product_TM.const_data_ptr<T>(),
            .norm = norm_T.const_data_ptr<T>(),
            .base = base.const_data_ptr<T>(),
            .scale = scale.const_data_ptr<T>(),
            .num_streams = num_streams(),
            .num_logits = fn.size(0),
            .iterations = config.sinkhorn_iterations,
            .eps = static_cast<T>(config.sinkhorn_eps)};
  }
};

void project_streams(Collapse& c) {
  c.product_TM = matmul_nt(c.x_TND.view({c.num_tokens(), c.width()}), c.fn).contiguous();
  c.norm_T = at::empty({c.num_tokens()}, c.x_TND.options());
  AT_DISPATCH_FLOATING_TYPES(c.x_TND.scalar_type(), "stream_norm", [&] {
    const cpu::StreamNormArgs<scalar_t> args{.x = c.x_TND.const_data_ptr<scalar_t>(),
                                             .norm = c.norm_T.mutable_data_ptr<scalar_t>(),
                                             .width = c.width(),
                                             .eps = static_cast<scalar_t>(c.config.rms_eps)};
    at::parallel_for(0, c.num_tokens(), kTokenGrain,
                     [&](int64_t begin, int64_t end) { cpu::stream_norm(args, begin, end); });
  });
}

// {y, post, comb}, the last two undefined for the final collapse.
HyperConnectionResult collapse(const Collapse& c) {
  const int64_t t = c.num_tokens(), n = c.num_streams();
  const auto options = c.x_TND.options();
  HyperConnectionResult result;
  result.y_TD = at::empty({t, c.dim()}, options);
  if (c.has_mix()) {
    result.post_TN = at::empty({t, n}, options);
    result.comb_TNN = at::empty({t, n, n}, options);
  }
  const at::Tensor pre_TN = at::empty({t, n}, options);
  AT_DISPATCH_FLOATING_TYPES(c.x_TND.scalar_type(), "hyper_connection", [&] {
    const cpu::StreamWeightsArgs<scalar_t> weights{.logits = c.logits<scalar_t>(),
                                                   .pre = pre_TN.mutable_data_ptr<scalar_t>(),
                                                   .post = optional_result<scalar_t>(result.post_TN),
                                                   .comb = optional_result<scalar_t>(result.comb_TNN)};
    const cpu::CollapseArgs<scalar_t> sum{.x = c.x_TND.const_data_ptr<scalar_t>(),
                                          .pre = pre_TN.const_data_ptr<scalar_t>(),
                                          .y = result.y_TD.mutable_data_ptr<scalar_t>(),
                                          .num_streams = n,
                                          .dim = c.dim()};
    at::parallel_for(0, t, kTokenGrain, [&](int64_t begin, int64_t end) {
      cpu::stream_weights(weights, begin, end);
      cpu::collapse_streams(sum, begin, end);
    });
  });
  return result;
}

struct CollapseGradients {
  at::Tensor logit_TM, product_TM;  // of the weights' logits, and of fn times the streams
  at::Tensor x_TND;
};

CollapseGradients collapse_grad(const Collapse& c, const HyperConnectionResult& grad, bool needs_x) {
  const int64_t t = c.num_tokens(), n = c.num_streams();
  const auto options = c.x_TND.options();
  CollapseGradients out{
      .logit_TM = at::empty_like(c.product_TM), .product_TM = at::empty_like(c.product_TM), .x_TND = {}};
  const at::Tensor pre_TN = at::empty({t, n}, options), grad_pre_TN = at::empty({t, n}, options);
  const at::Tensor factor_T = at::empty({t}, options);
  AT_DISPATCH_FLOATING_TYPES(c.x_TND.scalar_type(), "hyper_connection_grad", [&] {
    const scalar_t* x = c.x_TND.const_data_ptr<scalar_t>();
    const scalar_t* grad_y = grad.y_TD.const_data_ptr<scalar_t>();
    const cpu::CollapseGradPreArgs<scalar_t> pre{.x = x,
                                                 .grad_y = grad_y,
                                                 .grad_pre = grad_pre_TN.mutable_data_ptr<scalar_t>(),
                                                 .num_streams = n,
                                                 .dim = c.dim()};
    const cpu::StreamWeightsGradArgs<scalar_t> weights{.logits = c.logits<scalar_t>(),
                                                       .grad_pre = grad_pre_TN.const_data_ptr<scalar_t>(),
                                                       .grad_post = data_or_null<scalar_t>(grad.post_TN),
                                                       .grad_comb = data_or_null<scalar_t>(grad.comb_TNN),
                                                       .width = c.width(),
                                                       .pre = pre_TN.mutable_data_ptr<scalar_t>(),
                                                       .grad_logit = out.logit_TM.mutable_data_ptr<scalar_t>(),
                                                       .grad_product = out.product_TM.mutable_data_ptr<scalar_t>(),
                                                       .norm_factor = factor_T.mutable_data_ptr<scalar_t>()};
    at::parallel_for(0, t, kTokenGrain, [&](int64_t begin, int64_t end) {
      cpu::collapse_grad_pre(pre, begin, end);
      cpu::stream_weights_grad(weights, begin, end);
    });
    if (!needs_x) return;
    out.x_TND = matmul_nn(out.product_TM, c.fn).contiguous().view(c.x_TND.sizes());
    const cpu::CollapseGradXArgs<scalar_t> sum{.x = x,
                                               .grad_y = grad_y,
                                               .pre = pre_TN.const_data_ptr<scalar_t>(),
                                               .norm_factor = factor_T.const_data_ptr<scalar_t>(),
                                               .grad_x = out.x_TND.mutable_data_ptr<scalar_t>(),
                                               .num_streams = n,
                                               .dim = c.dim()};
    at::parallel_for(0, t, kTokenGrain, [&](int64_t begin, int64_t end) { cpu::collapse_grad_x(sum, begin, end); });
  });
  return out;
}

// The gradient of scale: sum of (gradient of logit * normalised product) over the logits that share an entry.
at::Tensor scale_grad(const Collapse& c, const at::Tensor& grad_logit_TM) {
  const int64_t n = c.num_streams(), m = c.fn.size(0);
  const at::Tensor sums_M = column_sum(grad_logit_TM * (c.product_TM * c.norm_T.unsqueeze(1)));
  if (!c.has_mix()) return sums_M.sum().view({1});
  return at::stack(
      {sums_M.narrow(0, 0, n).sum(), sums_M.narrow(0, n, n).sum(), sums_M.narrow(0, 2 * n, m - 2 * n).sum()});
}

// One node for statistics, projection, weights and collapse: it keeps M + 1 numbers per token beside the streams, where
// a composition would keep every step of the Sinkhorn chain and fp32 copies of the streams.
struct CollapseFunction : torch::autograd::Function<CollapseFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_TND, const at::Tensor& fn,
                               const at::Tensor& base, const at::Tensor& scale, const HyperConnectionConfig& config) {
    const at::ScalarType type = sum_type(x_TND.scalar_type());
    Collapse c{dense(x_TND, type), dense(fn, type), dense(base, type), dense(scale, type), {}, {}, config};
    project_streams(c);
    ctx->save_for_backward({x_TND, fn, base, scale, c.product_TM, c.norm_T});
    ctx->saved_data["iterations"] = config.sinkhorn_iterations;
    ctx->saved_data["sinkhorn_eps"] = config.sinkhorn_eps;
    const HyperConnectionResult result = collapse(c);
    const at::Tensor y_TD = result.y_TD.to(x_TND.scalar_type());
    if (!c.has_mix()) return {y_TD};
    return {y_TD, result.post_TN, result.comb_TNN};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &fn = saved[1], &base = saved[2], &scale = saved[3];
    const at::ScalarType type = sum_type(x.scalar_type());
    Collapse c{dense(x, type), dense(fn, type), dense(base, type), dense(scale, type), saved[4], saved[5], {}};
    c.config.sinkhorn_iterations = ctx->saved_data["iterations"].toInt();
    c.config.sinkhorn_eps = ctx->saved_data["sinkhorn_eps"].toDouble();
    HyperConnectionResult grad{.y_TD = dense(grads[0], type), .post_TN = {}, .comb_TNN = {}};
    if (c.has_mix()) {
      grad.post_TN = dense(grads[1], type);
      grad.comb_TNN = dense(grads[2], type);
    }
    const CollapseGradients out = collapse_grad(c, grad, ctx->needs_input_grad(0));
    variable_list result(5);
    if (ctx->needs_input_grad(0)) result[0] = out.x_TND.to(x.scalar_type());
    if (ctx->needs_input_grad(1)) {
      const at::Tensor flat = c.x_TND.view({c.num_tokens(), c.width()});
      result[1] = matmul_tn(out.product_TM, flat).to(fn.scalar_type());
    }
    if (ctx->needs_input_grad(2)) result[2] = column_sum(out.logit_TM).to(base.scalar_type());
    if (ctx->needs_input_grad(3)) result[3] = scale_grad(c, out.logit_TM).to(scale.scalar_type());
    return result;
  }
};

// Own node: one pass over the streams each way, nothing saved but the inputs.
struct MixFunction : torch::autograd::Function<MixFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TND, const at::Tensor& out_TD,
                            const at::Tensor& post_TN, const at::Tensor& comb_TNN) {
    ctx->save_for_backward({x_TND, out_TD, post_TN, comb_TNN});
    const at::ScalarType type = sum_type(x_TND.scalar_type());
    const at::Tensor x = dense(x_TND, type), out = dense(out_TD, type);
    const at::Tensor post = dense(post_TN, type), comb = dense(comb_TNN, type);
    at::Tensor mixed_TND = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(type, "hyper_connection_post", [&] {
      const cpu::MixArgs<scalar_t> args{.x = x.const_data_ptr<scalar_t>(),
                                        .out = out.const_data_ptr<scalar_t>(),
                                        .post = post.const_data_ptr<scalar_t>(),
                                        .comb = comb.const_data_ptr<scalar_t>(),
                                        .mixed = mixed_TND.mutable_data_ptr<scalar_t>(),
                                        .num_streams = x.size(1),
                                        .dim = x.size(2)};
      at::parallel_for(0, x.size(0), kTokenGrain,
                       [&](int64_t begin, int64_t end) { cpu::mix_streams(args, begin, end); });
    });
    return mixed_TND.to(x_TND.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::ScalarType type = sum_type(saved[0].scalar_type());
    variable_list input(4), result(4);
    for (size_t i = 0; i < input.size(); ++i) {
      input[i] = dense(saved[i], type);
      if (ctx->needs_input_grad(i)) result[i] = at::empty_like(input[i]);
    }
    const at::Tensor grad_mixed = dense(grads[0], type);
    AT_DISPATCH_FLOATING_TYPES(type, "hyper_connection_post_grad", [&] {
      const cpu::MixGradArgs<scalar_t> args{.x = input[0].const_data_ptr<scalar_t>(),
                                            .out = input[1].const_data_ptr<scalar_t>(),
                                            .post = input[2].const_data_ptr<scalar_t>(),
                                            .comb = input[3].const_data_ptr<scalar_t>(),
                                            .grad_mixed = grad_mixed.const_data_ptr<scalar_t>(),
                                            .grad_x = optional_result<scalar_t>(result[0]),
                                            .grad_out = optional_result<scalar_t>(result[1]),
                                            .grad_post = optional_result<scalar_t>(result[2]),
                                            .grad_comb = optional_result<scalar_t>(result[3]),
                                            .num_streams = input[0].size(1),
                                            .dim = input[0].size(2)};
      at::parallel_for(0, input[0].size(0), kTokenGrain,
                       [&](int64_t begin, int64_t end) { cpu::mix_streams_grad(args, begin, end); });
    });
    for (size_t i = 0; i < result.size(); ++i) {
      if (result[i].defined()) result[i] = result[i].to(saved[i].scalar_type());
    }
    return result;
  }
};

void check_collapse(const char* op, const at::Tensor& x_TND, const at::Tensor& fn, const at::Tensor& base,
                    const at::Tensor& scale, bool mix) {
  TORCH_CHECK(x_TND.dim() == 3 && x_TND.size(1) >= 1, "[", op, "] x must be [T, N, D], got ", x_TND.sizes());
  const int64_t n = x_TND.size(1), m = mix ? n * (n + 2) : n;
  TORCH_CHECK(fn.dim() == 2 && fn.size(0) == m && fn.size(1) == n * x_TND.size(2), "[", op, "] fn must be [", m, ", ",
              n * x_TND.size(2), "], got ", fn.sizes());
  TORCH_CHECK(base.dim() == 1 && base.size(0) == m, "[", op, "] base must be [", m, "], got ", base.sizes());
  const int64_t num_scales = mix ? 3 : 1;
  TORCH_CHECK(scale.dim() == 1 && scale.size(0) == num_scales, "[", op, "] scale must be [", num_scales, "], got ",
              scale.sizes());
}

}  // namespace

HyperConnectionResult hyper_connection_pre(const at::Tensor& x_TND, const at::Tensor& fn, const at::Tensor& base,
                                           const at::Tensor& scale, const HyperConnectionConfig& config) {
  check_collapse("hyper_connection_pre", x_TND, fn, base, scale, /*mix=*/true);
  TORCH_CHECK(config.sinkhorn_iterations >= 1, "[hyper_connection_pre] at least one Sinkhorn iteration is needed, got ",
              config.sinkhorn_iterations);
  const variable_list out = CollapseFunction::apply(x_TND, fn, base, scale, config);
  return {.y_TD = out[0], .post_TN = out[1], .comb_TNN = out[2]};
}

at::Tensor hyper_connection_post(const at::Tensor& x_TND, const at::Tensor& out_TD, const at::Tensor& post_TN,
                                 const at::Tensor& comb_TNN) {
  TORCH_CHECK(x_TND.dim() == 3 && x_TND.size(1) >= 1, "[hyper_connection_post] x must be [T, N, D], got ",
              x_TND.sizes());
  const int64_t t = x_TND.size(0), n = x_TND.size(1), d = x_TND.size(2);
  TORCH_CHECK(out_TD.sizes() == at::IntArrayRef({t, d}), "[hyper_connection_post] out must be [", t, ", ", d, "], got ",
              out_TD.sizes());
  TORCH_CHECK(post_TN.sizes() == at::IntArrayRef({t, n}), "[hyper_connection_post] post must be [", t, ", ", n,
              "], got ", post_TN.sizes());
  TORCH_CHECK(comb_TNN.sizes() == at::IntArrayRef({t, n, n}), "[hyper_connection_post] comb must be [", t, ", ", n,
              ", ", n, "], got ", comb_TNN.sizes());
  return MixFunction::apply(x_TND, out_TD, post_TN, comb_TNN);
}

at::Tensor hyper_connection_head(const at::Tensor& x_TND, const at::Tensor& fn, const at::Tensor& base,
                                 const at::Tensor& scale, const HyperConnectionConfig& config) {
  check_collapse("hyper_connection_head", x_TND, fn, base, scale, /*mix=*/false);
  return CollapseFunction::apply(x_TND, fn, base, scale, config)[0];
}

}  // namespace asterism::ops
