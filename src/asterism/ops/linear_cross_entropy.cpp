#include "asterism/ops/linear_cross_entropy.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/cpu/cross_entropy_kernel.h"
#include "asterism/ops/dense.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Problem {
  at::Tensor h_TD, w_VD;
  at::Tensor target_T;  // int64
  at::Tensor weight_T;  // or undefined
  int64_t chunk_bytes = 0;
  bool want_h = false, want_w = false;
};

struct Solution {
  double loss_sum = 0.0;
  int64_t correct = 0;
  at::Tensor grad_h_TD, grad_w_VD;  // for a loss with factor 1, in the type of the sums
};

void check_shapes(const Problem& p) {
  TORCH_CHECK(p.h_TD.dim() == 2 && p.w_VD.dim() == 2 && p.h_TD.size(1) == p.w_VD.size(1) && p.w_VD.size(0) > 0,
              "[linear_cross_entropy] h must be [T, D] and W [V, D], got ", p.h_TD.sizes(), " and ", p.w_VD.sizes());
  TORCH_CHECK(p.target_T.dim() == 1 && p.target_T.size(0) == p.h_TD.size(0) && p.target_T.scalar_type() == at::kLong,
              "[linear_cross_entropy] target must be int64 [", p.h_TD.size(0), "], got ", p.target_T.sizes(), " ",
              p.target_T.scalar_type());
  TORCH_CHECK(!p.weight_T.defined() || (p.weight_T.dim() == 1 && p.weight_T.size(0) == p.h_TD.size(0)),
              "[linear_cross_entropy] weight must be [", p.h_TD.size(0), "], got ",
              p.weight_T.defined() ? p.weight_T.sizes() : at::IntArrayRef());
}

// Rows with a target, in order.
std::vector<int64_t> scored_rows(const at::Tensor& target_T, int64_t vocab_size) {
  const at::Tensor target = target_T.contiguous();
  const int64_t* values = target.const_data_ptr<int64_t>();
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < target.numel(); ++t) {
    if (values[t] == kIgnoredTarget) continue;
    TORCH_CHECK(values[t] >= 0 && values[t] < vocab_size, "[linear_cross_entropy] targets must be ", kIgnoredTarget,
                " or 0 .. ", vocab_size - 1, " for a vocabulary of ", vocab_size, ", got ", values[t], " at row ", t);
    rows.push_back(t);
  }
  return rows;
}

template <typename T>
void score_logits(const at::Tensor& logits_CV, const at::Tensor& target_C, const at::Tensor& weight_C, bool want_grad,
                  Solution& total) {
  const int64_t rows = logits_CV.size(0);
  std::vector<double> losses(rows);
  std::vector<uint8_t> correct(rows);
  const cpu::CrossEntropyArgs<T> args{.logits = logits_CV.mutable_data_ptr<T>(),
                                      .target = target_C.const_data_ptr<int64_t>(),
                                      .weight = data_or_null<T>(weight_C),
                                      .loss = losses.data(),
                                      .correct = correct.data(),
                                      .vocab_size = logits_CV.size(1),
                                      .want_grad = want_grad};
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) { cpu::cross_entropy_rows(args, begin, end); });
  for (int64_t row = 0; row < rows; ++row) {
    total.loss_sum += losses[row];
    total.correct += correct[row];
  }
}

Solution solve(const Problem& p) {
  check_shapes(p);
  const at::ScalarType type = sum_type(p.h_TD.scalar_type());
  const int64_t vocab_size = p.w_VD.size(0);
  std::vector<int64_t> row_list = scored_rows(p.target_T, vocab_size);
  const int64_t num_rows = static_cast<int64_t>(row_list.size());
  const at::Tensor rows = at::from_blob(row_list.data(), {num_rows}, at::kLong);
  const at::ScalarType factor_type = product_type(p.h_TD.scalar_type());
  // Once, not once per chunk; bf16 is widened by the products themselves.
  const bool converts = factor_type != at::kFloat || p.w_VD.scalar_type() != at::kBFloat16;
  const at::Tensor w_VD = converts ? p.w_VD.to(factor_type) : p.w_VD;
  const at::Tensor weight_T = p.weight_T.defined() ? p.weight_T.to(type) : at::Tensor();
  const int64_t row_bytes = vocab_size * static_cast<int64_t>(c10::elementSize(type));
  const int64_t chunk = std::max<int64_t>(1, p.chunk_bytes / row_bytes);
  const auto score = type == at::kDouble ? score_logits<double> : score_logits<float>;
  Solution result;
  if (p.want_h) result.grad_h_TD = at::zeros(p.h_TD.sizes(), p.h_TD.options().dtype(type));
  if (p.want_w) result.grad_w_VD = at::zeros(w_VD.sizes(), w_VD.options().dtype(type));
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const at::Tensor chosen = rows.narrow(0, begin, std::min(chunk, num_rows - begin));
    const at::Tensor h_CD = p.h_TD.index_select(0, chosen).to(factor_type);
    const at::Tensor weight_C = weight_T.defined() ? weight_T.index_select(0, chosen) : at::Tensor();
    const at::Tensor logits_CV = matmul_nt(h_CD, w_VD, type);
    // From here on the chunk holds the gradient of its logits.
    score(logits_CV, p.target_T.index_select(0, chosen), weight_C, p.want_h || p.want_w, result);
    if (!p.want_h && !p.want_w) continue;
    const at::Tensor grad_CV = logits_CV.to(factor_type);
    if (p.want_h) result.grad_h_TD.index_copy_(0, chosen, matmul_nn(grad_CV, w_VD, type));
    if (p.want_w) matmul_accumulate(result.grad_w_VD, grad_CV.t(), h_CD);
  }
  return result;
}

// Own node: the gradients come out of the chunk loop, before the logits are gone.
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h_TD, const at::Tensor& w_VD,
                            const Problem& problem) {
    Solution result = solve(problem);
    if (problem.want_h) ctx->saved_data["grad_h"] = std::move(result.grad_h_TD);
    if (problem.want_w) ctx->saved_data["grad_w"] = std::move(result.grad_w_VD);
    ctx->saved_data["h_type"] = h_TD.scalar_type();
    ctx->saved_data["w_type"] = w_VD.scalar_type();
    return at::scalar_tensor(result.loss_sum, h_TD.options().dtype(sum_type(h_TD.scalar_type())));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const double factor = grads[0].item<double>();
    return {hand_out(ctx, 0, "grad_h", factor, "h_type"), hand_out(ctx, 1, "grad_w", factor, "w_type"), at::Tensor()};
  }

 private:
  // The buffer leaves the node: scaling it in place saves a copy as large as W, and the leaf can keep it as its
  // gradient.
  static at::Tensor hand_out(AutogradContext* ctx, size_t input, const char* name, double factor,
                             const char* type_name) {
    if (!ctx->needs_input_grad(input)) return {};
    const auto found = ctx->saved_data.find(name);
    TORCH_CHECK(
        found != ctx->saved_data.end(),
        "[linear_cross_entropy] the gradients were handed out by an earlier backward pass; run the forward again");
    at::Tensor grad = std::move(found->second).toTensor();
    ctx->saved_data.erase(found);
    return grad.mul_(factor).to(ctx->saved_data[type_name].toScalarType());
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& w_VD, const at::Tensor& target_T,
                                const at::Tensor& weight_T, int64_t chunk_bytes) {
  const bool recording = at::GradMode::is_enabled();
  const Problem problem{.h_TD = h_TD.detach(),
                        .w_VD = w_VD.detach(),
                        .target_T = target_T,
                        .weight_T = weight_T.defined() ? weight_T.detach() : at::Tensor(),
                        .chunk_bytes = chunk_bytes,
                        .want_h = recording && h_TD.requires_grad(),
                        .want_w = recording && w_VD.requires_grad()};
  return LinearCrossEntropy::apply(h_TD, w_VD, problem);
}

CrossEntropyScores score_cross_entropy(const at::Tensor& h_TD, const at::Tensor& w_VD, const at::Tensor& target_T,
                                       const at::Tensor& weight_T, int64_t chunk_bytes) {
  const at::NoGradGuard no_grad;
  const Solution result = solve({.h_TD = h_TD,
                                 .w_VD = w_VD,
                                 .target_T = target_T,
                                 .weight_T = weight_T,
                                 .chunk_bytes = chunk_bytes,
                                 .want_h = false,
                                 .want_w = false});
  return {result.loss_sum, result.correct};
}

}  // namespace asterism::ops
