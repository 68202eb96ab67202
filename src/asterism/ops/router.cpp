#include "asterism/ops/router.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <numeric>

#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Plain loops throughout: vectorised library kernels round the last elements of a thread's share differently, and a
// score that depends on the number of threads could change a choice.
constexpr int64_t kRowGrain = 16;
constexpr double kFloor = 1e-20;  // keeps a sum of underflowed scores from dividing by zero
constexpr double kStableBelow = -20.0;

template <typename T>
T affinity(T logit) {
  if (logit < T(kStableBelow)) return std::exp(logit / 2);
  return std::sqrt(std::max(logit, T(0)) + std::log1p(std::exp(-std::abs(logit))));
}

template <typename T>
T affinity_slope(T logit) {
  if (logit < T(kStableBelow)) return affinity(logit) / 2;
  return T(1) / (T(1) + std::exp(-logit)) / (2 * affinity(logit));
}

at::Tensor dense_logits(const at::Tensor& logits_TE) {
  return logits_TE.to(sum_type(logits_TE.scalar_type())).contiguous();
}

// scores and, if `slope_TE` is defined, their derivatives
void fill_scores(const at::Tensor& logits_TE, const at::Tensor& score_TE, const at::Tensor& slope_TE) {
  AT_DISPATCH_FLOATING_TYPES(logits_TE.scalar_type(), "router_scores", [&] {
    const scalar_t* logit = logits_TE.const_data_ptr<scalar_t>();
    scalar_t* score = score_TE.mutable_data_ptr<scalar_t>();
    scalar_t* slope = slope_TE.defined() ? slope_TE.mutable_data_ptr<scalar_t>() : nullptr;
    at::parallel_for(0, logits_TE.numel(), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        score[i] = affinity(logit[i]);
        if (slope != nullptr) slope[i] = affinity_slope(logit[i]);
      }
    });
  });
}

// The k largest of `score`, ties to the smaller index, ascending index. NaN ranks last, so that the result is always k
// different experts.
template <typename T>
void choose_row(const T* score, int64_t num_experts, int64_t k, int64_t* chosen) {
  std::vector<T> best;
  best.reserve(k + 1);
  int64_t count = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const T value = std::isnan(score[e]) ? -std::numeric_limits<T>::infinity() : score[e];
    if (count == k && !(value > best[k - 1])) continue;
    const auto place = std::upper_bound(best.begin(), best.end(), value, std::greater<T>());
    const int64_t index = place - best.begin();
    best.insert(place, value);
    count = std::min(count + 1, k);
    best.resize(count);
    std::copy_backward(chosen + index, chosen + count - 1, chosen + count);
    chosen[index] = e;
  }
  std::sort(chosen, chosen + k);
}

void check_choice(const char* op, const at::Tensor& logits_TE, const at::Tensor& expert_TK) {
  TORCH_CHECK(logits_TE.dim() == 2, "[", op, "] logits must be [T, E], got ", logits_TE.sizes());
  TORCH_CHECK(expert_TK.dim() == 2 && expert_TK.size(0) == logits_TE.size(0) && expert_TK.scalar_type() == at::kLong,
              "[", op, "] the chosen experts must be int64 [", logits_TE.size(0), ", K], got ", expert_TK.sizes(), " ",
              expert_TK.scalar_type());
  if (expert_TK.numel() == 0) return;
  const auto [low, high] = at::aminmax(expert_TK);
  TORCH_CHECK(low.item<int64_t>() >= 0 && high.item<int64_t>() < logits_TE.size(1), "[", op,
              "] expert ids must be 0 .. ", logits_TE.size(1) - 1, ", got ", low.item<int64_t>(), " .. ",
              high.item<int64_t>());
}

// Own node: its backward has the stable branch for underflowing scores, where autograd's would divide 0 by 0.
struct RouterWeightsFunction : torch::autograd::Function<RouterWeightsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits_TE, const at::Tensor& expert_TK,
                            double scaling) {
    ctx->save_for_backward({logits_TE});
    ctx->saved_data["expert"] = expert_TK;
    ctx->saved_data["scaling"] = scaling;
    const at::Tensor logits = dense_logits(logits_TE), chosen = expert_TK.contiguous();
    const int64_t k = chosen.size(1), num_experts = logits.size(1);
    at::Tensor weight_TK = at::empty({chosen.size(0), k}, logits.options());
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "router_weights", [&] {
      const scalar_t* logit = logits.const_data_ptr<scalar_t>();
      const int64_t* expert = chosen.const_data_ptr<int64_t>();
      scalar_t* weight = weight_TK.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, chosen.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          scalar_t sum = 0;
          for (int64_t i = t * k; i < (t + 1) * k; ++i) {
            weight[i] = affinity(logit[t * num_experts + expert[i]]);
            sum += weight[i];
          }
          const scalar_t factor = static_cast<scalar_t>(scaling) / (sum + static_cast<scalar_t>(kFloor));
          for (int64_t i = t * k; i < (t + 1) * k; ++i) weight[i] *= factor;
        }
      });
    });
    return weight_TK;
  }

  // ds_i = (c / S) (dw_i - sum_j dw_j s_j / S), dl_i = ds_i s'(l_i); an expert named twice gets both.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor logits_TE = ctx->get_saved_variables()[0];
    const at::Tensor logits = dense_logits(logits_TE), chosen = ctx->saved_data["expert"].toTensor().contiguous();
    const double scaling = ctx->saved_data["scaling"].toDouble();
    const at::Tensor grad_TK = grads[0].to(logits.scalar_type()).contiguous();
    const int64_t k = chosen.size(1), num_experts = logits.size(1);
    at::Tensor grad_TE = at::zeros_like(logits);
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "router_weights_grad", [&] {
      const scalar_t* logit = logits.const_data_ptr<scalar_t>();
      const int64_t* expert = chosen.const_data_ptr<int64_t>();
      const scalar_t* grad_weight = grad_TK.const_data_ptr<scalar_t>();
      scalar_t* grad_logit = grad_TE.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, chosen.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          scalar_t sum = static_cast<scalar_t>(kFloor), contraction = 0;
          for (int64_t i = t * k; i < (t + 1) * k; ++i) sum += affinity(logit[t * num_experts + expert[i]]);
          for (int64_t i = t * k; i < (t + 1) * k; ++i) {
            contraction += grad_weight[i] * (affinity(logit[t * num_experts + expert[i]]) / sum);
          }
          for (int64_t i = t * k; i < (t + 1) * k; ++i) {
            const int64_t at = t * num_experts + expert[i];
            // The slope first: it is as small as the sum when everything underflows.
            const scalar_t slope = affinity_slope(logit[at]) / sum;
            grad_logit[at] += static_cast<scalar_t>(scaling) * slope * (grad_weight[i] - contraction);
          }
        }
      });
    });
    return {grad_TE.to(logits_TE.scalar_type()), {}, {}};
  }
};

// share[d, i] = f_i / T_d with f_i = E / (K T_d) * (slots of document d that name expert i)
at::Tensor expert_shares(const at::Tensor& expert_TK, const Documents& documents, int64_t num_experts) {
  const int64_t k = expert_TK.size(1);
  const at::Tensor chosen = expert_TK.contiguous();
  at::Tensor share = at::zeros({documents.num_documents(), num_experts}, at::kDouble);
  const int64_t* expert = chosen.const_data_ptr<int64_t>();
  for (int64_t d = 0; d < documents.num_documents(); ++d) {
    const int64_t begin = documents.offsets[d], end = documents.offsets[d + 1];
    double* row = share.data_ptr<double>() + d * num_experts;
    for (int64_t i = begin * k; i < end * k; ++i) row[expert[i]] += 1.0;
    const double length = static_cast<double>(end - begin);
    for (int64_t e = 0; e < num_experts; ++e) row[e] *= num_experts / (k * length * length);
  }
  return share;
}

// Own node for the same reason, and because f carries no gradient.
struct BalanceLossFunction : torch::autograd::Function<BalanceLossFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits_TE, const at::Tensor& expert_TK,
                            const Documents& documents) {
    const at::Tensor logits = dense_logits(logits_TE);
    const int64_t num_tokens = logits.size(0), num_experts = logits.size(1);
    const at::Tensor share = expert_shares(expert_TK, documents, num_experts).to(logits.scalar_type());
    const at::Tensor score_TE = at::empty_like(logits), slope_TE = at::empty_like(logits);
    fill_scores(logits, score_TE, slope_TE);
    double loss = 0;
    // grad = s'(l_i) (q_i - sum_j q_j p_j) / S, q the document's shares, p = s / S
    at::Tensor grad_TE = at::empty_like(logits);
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "balance_loss", [&] {
      const scalar_t* score = score_TE.const_data_ptr<scalar_t>();
      const scalar_t* slope = slope_TE.const_data_ptr<scalar_t>();
      scalar_t* grad = grad_TE.mutable_data_ptr<scalar_t>();
      int64_t d = 0;
      for (int64_t t = 0; t < num_tokens; ++t) {
        while (t >= documents.offsets[d + 1]) ++d;
        const scalar_t* q = share.const_data_ptr<scalar_t>() + d * num_experts;
        scalar_t sum = static_cast<scalar_t>(kFloor), value = 0;
        for (int64_t e = 0; e < num_experts; ++e) sum += score[t * num_experts + e];
        for (int64_t e = 0; e < num_experts; ++e) value += q[e] * (score[t * num_experts + e] / sum);
        for (int64_t e = 0; e < num_experts; ++e) {
          grad[t * num_experts + e] = slope[t * num_experts + e] / sum * (q[e] - value);
        }
        loss += value;
      }
    });
    ctx->save_for_backward({grad_TE});
    ctx->saved_data["type"] = static_cast<int64_t>(logits_TE.scalar_type());
    return at::scalar_tensor(loss, logits.options());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {(ctx->get_saved_variables()[0] * grads[0]).to(type), {}, {}};
  }
};

}  // namespace

at::Tensor router_scores(const at::Tensor& logits_TE) {
  const at::Tensor logits = dense_logits(logits_TE.detach());
  at::Tensor score_TE = at::empty_like(logits);
  fill_scores(logits, score_TE, {});
  return score_TE;
}

at::Tensor choose_experts(const at::Tensor& logits_TE, const at::Tensor& bias_E, int64_t k) {
  TORCH_CHECK(logits_TE.dim() == 2, "[choose_experts] logits must be [T, E], got ", logits_TE.sizes());
  const int64_t num_experts = logits_TE.size(1);
  TORCH_CHECK(bias_E.dim() == 1 && bias_E.size(0) == num_experts, "[choose_experts] bias must be [", num_experts,
              "], got ", bias_E.sizes());
  TORCH_CHECK(k >= 1 && k <= num_experts, "[choose_experts] k must be 1 .. ", num_experts, ", got ", k);
  const at::Tensor score_TE = router_scores(logits_TE);
  const at::Tensor biased_TE = (score_TE + bias_E.detach().to(score_TE.scalar_type())).contiguous();
  at::Tensor expert_TK = at::empty({logits_TE.size(0), k}, at::kLong);
  AT_DISPATCH_FLOATING_TYPES(biased_TE.scalar_type(), "choose_experts", [&] {
    const scalar_t* score = biased_TE.const_data_ptr<scalar_t>();
    int64_t* expert = expert_TK.mutable_data_ptr<int64_t>();
    at::parallel_for(0, expert_TK.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) choose_row(score + t * num_experts, num_experts, k, expert + t * k);
    });
  });
  return expert_TK;
}

at::Tensor hash_experts(const at::Tensor& table_VK, const at::Tensor& ids_T) {
  TORCH_CHECK(table_VK.dim() == 2 && (table_VK.scalar_type() == at::kInt || table_VK.scalar_type() == at::kLong),
              "[hash_experts] the table must be int32 or int64 [V, K], got ", table_VK.sizes(), " ",
              table_VK.scalar_type());
  TORCH_CHECK(ids_T.dim() == 1 && (ids_T.scalar_type() == at::kInt || ids_T.scalar_type() == at::kLong),
              "[hash_experts] token ids must be int32 or int64 [T], got ", ids_T.sizes(), " ", ids_T.scalar_type());
  if (ids_T.numel() > 0) {
    const auto [low, high] = at::aminmax(ids_T);
    TORCH_CHECK(low.item<int64_t>() >= 0 && high.item<int64_t>() < table_VK.size(0),
                "[hash_experts] token ids must be 0 .. ", table_VK.size(0) - 1, ", got ", low.item<int64_t>(), " .. ",
                high.item<int64_t>());
  }
  return table_VK.index_select(0, ids_T).to(at::kLong);
}

at::Tensor router_weights(const at::Tensor& logits_TE, const at::Tensor& expert_TK, double scaling) {
  check_choice("router_weights", logits_TE, expert_TK);
  return RouterWeightsFunction::apply(logits_TE, expert_TK, scaling);
}

at::Tensor balance_loss(const at::Tensor& logits_TE, const at::Tensor& expert_TK, const Documents& documents) {
  check_choice("balance_loss", logits_TE, expert_TK);
  TORCH_CHECK(documents.num_tokens() == logits_TE.size(0), "[balance_loss] documents of ", documents.num_tokens(),
              " tokens do not fit logits of ", logits_TE.size(0));
  return BalanceLossFunction::apply(logits_TE, expert_TK, documents);
}

}  // namespace asterism::ops
