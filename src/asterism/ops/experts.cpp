#include "asterism/ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/gemm.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/packed_matmul.h"
#include "asterism/ops/swiglu.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- rows -----------------------------------------------------------------------------------------------------------

// The experts that have rows.
std::vector<RowRange> busy_experts(const std::vector<int64_t>& offsets) {
  std::vector<RowRange> busy;
  for (int64_t e = 0; e + 1 < static_cast<int64_t>(offsets.size()); ++e) {
    if (offsets[e + 1] > offsets[e]) busy.push_back({e, offsets[e], offsets[e + 1] - offsets[e]});
  }
  return busy;
}

// ---- low-rank updates -----------------------------------------------------------------------------------------------

// PEFT keeps A expert-major, rows e r .. of [E r, in], but B rank-major, columns e, e + E, .. of [out, r E].
struct ExpertPair {
  at::Tensor a_ERK;  // [E, r, in]
  at::Tensor b_ENR;  // [E, out, r], times the scale
};

ExpertPair unpack(const at::Tensor& a, const at::Tensor& b, int64_t num_experts, double scale) {
  const int64_t r = a.size(0) / num_experts;
  const at::ScalarType type = sum_type(a.scalar_type());
  return {a.to(type).reshape({num_experts, r, a.size(1)}),
          (b.to(type).view({b.size(0), r, num_experts}).permute({2, 0, 1}) * scale).contiguous()};
}

// ---- one matrix of all experts --------------------------------------------------------------------------------------

// W [E, out, in] and its update, if it has one.
struct ExpertMatrix {
  Matrix weight;
  std::optional<ExpertPair> lora;
};

// One product per expert that has rows, all of them shared out to the threads at once: make(rows) gives each.
template <typename Make>
void run_grouped(const std::vector<RowRange>& busy, const Make& make) {
  std::vector<Product> products;
  for (const RowRange& rows : busy) products.push_back(make(rows));
  run_products(products);
}

// hidden_R = x_R times the low-rank factor of each expert, [E, in, r]; in the type of sums.
at::Tensor low_rank_rows(const at::Tensor& x_RK, const at::Tensor& factor_EKR, const std::vector<RowRange>& busy) {
  const at::Tensor hidden = at::empty({x_RK.size(0), factor_EKR.size(2)}, factor_EKR.options());
  run_grouped(busy, [&](const RowRange& rows) {
    return Product{.c = rows.of(hidden), .terms = {{rows.of(x_RK), factor_EKR[rows.matrix]}}};
  });
  return hidden;
}

// y_R = x_R F_e + hidden_R G_e for the factors F [E, K, N] and, where there is an update, G [E, r, N]: one sum.
at::Tensor multiply_plain(const at::Tensor& x_RK, const at::Tensor& factor_EKN, const at::Tensor& hidden_RH,
                          const at::Tensor& update_EHN, const std::vector<RowRange>& busy) {
  const at::Tensor y_RN = at::empty({x_RK.size(0), factor_EKN.size(2)}, x_RK.options());
  // Weights of another type are converted an expert at a time, never all of them.
  std::vector<Product> products;
  for (const RowRange& rows : busy) {
    const at::Tensor factor_KN = factor_EKN[rows.matrix];
    Product product{.c = rows.of(y_RN), .terms = {factors_of(rows.of(x_RK), factor_KN)}};
    const bool converts = !product.terms[0].b.is_same(factor_KN);
    if (hidden_RH.defined()) product.terms.push_back({rows.of(hidden_RH), update_EHN[rows.matrix]});
    products.push_back(std::move(product));
    if (!converts) continue;
    run_products(products);
    products.clear();
  }
  run_products(products);
  return y_RN;
}

// Adds hidden_R G_e to the rows of y, which came from packed weights.
void add_update(const at::Tensor& y_RN, const at::Tensor& hidden_RH, const at::Tensor& update_EHN,
                const std::vector<RowRange>& busy) {
  const at::Tensor sum_RN = y_RN.to(hidden_RH.scalar_type());
  run_grouped(busy, [&](const RowRange& rows) {
    return Product{.c = rows.of(sum_RN), .terms = {{rows.of(hidden_RH), update_EHN[rows.matrix]}}, .add = true};
  });
  if (!sum_RN.is_same(y_RN)) at::Tensor(y_RN).copy_(sum_RN);
}

// y_R = x_R W_eᵀ + scale (x_R A_eᵀ) B_eᵀ, expert by expert
at::Tensor multiply(const at::Tensor& x_RK, const ExpertMatrix& matrix, const std::vector<RowRange>& busy) {
  at::Tensor hidden_RH, update_EHN;
  if (matrix.lora) {
    hidden_RH = low_rank_rows(x_RK, matrix.lora->a_ERK.transpose(1, 2), busy);
    update_EHN = matrix.lora->b_ENR.transpose(1, 2);
  }
  if (!matrix.weight.packed) {
    return multiply_plain(x_RK, matrix.weight.plain.transpose(1, 2), hidden_RH, update_EHN, busy);
  }
  const at::Tensor y_RN = packed_matmul_nt(x_RK, *matrix.weight.packed, busy);
  if (matrix.lora) add_update(y_RN, hidden_RH, update_EHN, busy);
  return y_RN;
}

// grad_x_R = grad_y_R W_e + scale (grad_y_R B_e) A_e
at::Tensor multiply_grad_x(const at::Tensor& grad_RN, const ExpertMatrix& matrix, const std::vector<RowRange>& busy) {
  at::Tensor hidden_RH, update_EHK;
  if (matrix.lora) {
    hidden_RH = low_rank_rows(grad_RN, matrix.lora->b_ENR, busy);
    update_EHK = matrix.lora->a_ERK;
  }
  if (!matrix.weight.packed) return multiply_plain(grad_RN, matrix.weight.plain, hidden_RH, update_EHK, busy);
  const at::Tensor grad_RK = packed_matmul_nn(grad_RN, *matrix.weight.packed, busy);
  if (matrix.lora) add_update(grad_RK, hidden_RH, update_EHK, busy);
  return grad_RK;
}

// out_e = left_Rᵀ right_R of the rows of each expert, zero for those without rows.
at::Tensor row_products(const at::Tensor& left_RM, const at::Tensor& right_RN, const at::Tensor& like,
                        const std::vector<RowRange>& busy) {
  // Dense, whatever the strides of `like`.
  const bool all_busy = busy.size() == static_cast<size_t>(like.size(0));
  const at::Tensor out = all_busy ? at::empty(like.sizes(), like.options()) : at::zeros(like.sizes(), like.options());
  run_grouped(busy, [&](const RowRange& rows) {
    return Product{.c = out[rows.matrix], .terms = {{rows.of(left_RM).t(), rows.of(right_RN)}}};
  });
  return out;
}

// Gradients of A and B in PEFT's layout.
std::pair<at::Tensor, at::Tensor> lora_grad(const at::Tensor& grad_RN, const at::Tensor& x_RK, const ExpertPair& pair,
                                            double scale, const std::vector<RowRange>& busy) {
  const at::Tensor grad_hidden_RH = low_rank_rows(grad_RN, pair.b_ENR, busy);
  const at::Tensor hidden_RH = low_rank_rows(x_RK, pair.a_ERK.transpose(1, 2), busy);
  const at::Tensor grad_a = row_products(grad_hidden_RH, x_RK, pair.a_ERK, busy);
  const at::Tensor grad_b = row_products(grad_RN, hidden_RH, pair.b_ENR, busy).mul_(scale);
  const int64_t num_experts = grad_a.size(0), r = grad_a.size(1);
  return {grad_a.reshape({num_experts * r, grad_a.size(2)}),
          grad_b.permute({1, 2, 0}).reshape({grad_b.size(1), r * num_experts})};
}

// ---- the node -------------------------------------------------------------------------------------------------------

// Weights that are packed: constants, which autograd does not see.
struct PackedExperts {
  std::optional<PackedMatrix> gate_up, down;
};

// One node for gather, both products, activation and combine: it keeps x and the gate_up output, where a composition
// would keep the gathered rows, both clamps, the activation and the unsummed outputs.
struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  using OptionalTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& weight_TK,
                            const OptionalTensor& gate_up, const OptionalTensor& down, const OptionalTensor& gate_up_a,
                            const OptionalTensor& gate_up_b, const OptionalTensor& down_a, const OptionalTensor& down_b,
                            const Dispatch& dispatch, double limit, double gate_up_scale, double down_scale,
                            const PackedExperts& packed, Kept* kept) {
    const std::vector<RowRange> busy = busy_experts(dispatch.offsets);
    const ExpertMatrix first = adapted(packed.gate_up, gate_up, gate_up_a, gate_up_b, gate_up_scale);
    const ExpertMatrix second = adapted(packed.down, down, down_a, down_b, down_scale);
    const Kept values = kept_or(kept, [&] {
      const at::Tensor gate_up_RJ = multiply(x_TD.index_select(0, dispatch.token_R), first, busy);
      const at::Tensor weight_R = row_weights(weight_TK, dispatch.slot_R, x_TD);
      const at::Tensor hidden_RI = swiglu_values(gate_up_RJ, weight_R, limit);
      return Kept{gate_up_RJ, combine_rows(multiply(hidden_RI, second, busy), dispatch.row_TK)};
    });
    const at::Tensor none;
    ctx->save_for_backward({x_TD, weight_TK, gate_up.value_or(none), down.value_or(none), gate_up_a.value_or(none),
                            gate_up_b.value_or(none), down_a.value_or(none), down_b.value_or(none), values[0]});
    ctx->saved_data["offsets"] = dispatch.offsets;
    ctx->saved_data["token"] = dispatch.token_R;
    ctx->saved_data["slot"] = dispatch.slot_R;
    ctx->saved_data["row"] = dispatch.row_TK;
    ctx->saved_data["limit"] = limit;
    ctx->saved_data["gate_up_scale"] = gate_up_scale;
    ctx->saved_data["down_scale"] = down_scale;
    if (packed.gate_up) ctx->saved_data["packed_gate_up"] = to_ivalue(*packed.gate_up);
    if (packed.down) ctx->saved_data["packed_down"] = to_ivalue(*packed.down);
    return values[1];
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &weight_TK = saved[1], &gate_up = saved[2], &down = saved[3];
    const double limit = ctx->saved_data["limit"].toDouble();
    const double gate_up_scale = ctx->saved_data["gate_up_scale"].toDouble();
    const double down_scale = ctx->saved_data["down_scale"].toDouble();
    const std::vector<RowRange> busy = busy_experts(ctx->saved_data["offsets"].toIntVector());
    const at::Tensor token_R = ctx->saved_data["token"].toTensor(), slot_R = ctx->saved_data["slot"].toTensor();
    const PackedExperts packed{kept(ctx, "packed_gate_up"), kept(ctx, "packed_down")};
    const ExpertMatrix first =
        adapted(packed.gate_up, present(gate_up), present(saved[4]), present(saved[5]), gate_up_scale);
    const ExpertMatrix second = adapted(packed.down, present(down), present(saved[6]), present(saved[7]), down_scale);
    const std::array<bool, 8> needs = needed(ctx, saved);

    const at::Tensor grad_RD = grads[0].to(x_TD.scalar_type()).index_select(0, token_R);
    const at::Tensor& gate_up_RJ = saved[8];
    const at::Tensor weight_R = row_weights(weight_TK, slot_R, x_TD);
    variable_list result(14);
    if (needs[3] || needs[6] || needs[7]) {
      const at::Tensor hidden_RI = swiglu_values(gate_up_RJ, weight_R, limit);
      if (needs[3]) result[3] = row_products(grad_RD, hidden_RI, down, busy);
      if (second.lora) set_lora_grad(result, 6, lora_grad(grad_RD, hidden_RI, *second.lora, down_scale, busy), saved);
    }
    const bool want_inner = needs[0] || needs[2] || needs[4] || needs[5];
    const SwigluGradients inner =
        swiglu_gradients(multiply_grad_x(grad_RD, second, busy), gate_up_RJ, weight_R, limit, want_inner, needs[1]);
    const at::Tensor& grad_RJ = inner.gate_up;
    if (needs[0]) {
      result[0] = combine_rows(multiply_grad_x(grad_RJ, first, busy), ctx->saved_data["row"].toTensor());
    }
    if (needs[1]) {
      at::Tensor grad_weight = at::empty({weight_TK.numel()}, inner.row_weight.options());
      grad_weight.index_copy_(0, slot_R, inner.row_weight);
      result[1] = grad_weight.view(weight_TK.sizes()).to(weight_TK.scalar_type());
    }
    if (needs[2] || needs[4] || needs[5]) {
      const at::Tensor x_RD = x_TD.index_select(0, token_R);
      if (needs[2]) result[2] = row_products(grad_RJ, x_RD, gate_up, busy);
      if (first.lora) set_lora_grad(result, 4, lora_grad(grad_RJ, x_RD, *first.lora, gate_up_scale, busy), saved);
    }
    return result;
  }

 private:
  static OptionalTensor present(const at::Tensor& x) { return x.defined() ? OptionalTensor(x) : std::nullopt; }

  static std::optional<PackedMatrix> kept(AutogradContext* ctx, const std::string& key) {
    const auto found = ctx->saved_data.find(key);
    return found == ctx->saved_data.end() ? std::nullopt : std::optional(packed_of(found->second));
  }

  static ExpertMatrix adapted(const std::optional<PackedMatrix>& packed, const OptionalTensor& plain,
                              const OptionalTensor& a, const OptionalTensor& b, double scale) {
    ExpertMatrix matrix{packed ? Matrix(*packed) : Matrix(*plain), std::nullopt};
    if (a) matrix.lora = unpack(*a, *b, matrix.weight.size(0), scale);
    return matrix;
  }

  static at::Tensor row_weights(const at::Tensor& weight_TK, const at::Tensor& slot_R, const at::Tensor& x_TD) {
    return weight_TK.reshape({-1}).index_select(0, slot_R).to(sum_type(x_TD.scalar_type()));
  }

  // Autograd counts edges of the tensors that are there; absent updates and packed weights have none.
  static std::array<bool, 8> needed(AutogradContext* ctx, const variable_list& saved) {
    std::array<bool, 8> needs{};
    size_t edge = 0;
    for (size_t i = 0; i < needs.size(); ++i) {
      if (saved[i].defined()) needs[i] = ctx->needs_input_grad(edge++);
    }
    return needs;
  }

  static void set_lora_grad(variable_list& result, size_t index, const std::pair<at::Tensor, at::Tensor>& grads,
                            const variable_list& saved) {
    result[index] = grads.first.to(saved[index].scalar_type());
    result[index + 1] = grads.second.to(saved[index + 1].scalar_type());
  }
};

void check_lora(const char* name, const std::optional<ExpertLora>& lora, const Matrix& weight) {
  if (!lora) return;
  const int64_t num_experts = weight.size(0);
  const at::Tensor &a = lora->a_RK, &b = lora->b_NR;
  TORCH_CHECK(a.dim() == 2 && a.size(1) == weight.size(2) && a.size(0) > 0 && a.size(0) % num_experts == 0,
              "[grouped_experts] A of the ", name, " update must be [", num_experts, " * r, ", weight.size(2),
              "], got ", a.sizes());
  TORCH_CHECK(b.dim() == 2 && b.size(0) == weight.size(1) && b.size(1) == a.size(0), "[grouped_experts] B of the ",
              name, " update must be [", weight.size(1), ", ", a.size(0), "], got ", b.sizes());
}

}  // namespace

at::Tensor combine_rows(const at::Tensor& rows_RD, const at::Tensor& row_TK) {
  at::Tensor sum_TD =
      at::zeros({row_TK.size(0), rows_RD.size(1)}, rows_RD.options().dtype(sum_type(rows_RD.scalar_type())));
  // A gather, so no two additions race.
  for (int64_t k = 0; k < row_TK.size(1); ++k) sum_TD.add_(rows_RD.index_select(0, row_TK.select(1, k)));
  return sum_TD.to(rows_RD.scalar_type());
}

at::Tensor grouped_experts(const at::Tensor& x_TD, const at::Tensor& weight_TK, const Dispatch& dispatch,
                           const Matrix& gate_up, const Matrix& down, double limit,
                           const std::optional<ExpertLora>& gate_up_lora, const std::optional<ExpertLora>& down_lora,
                           Kept* kept) {
  const int64_t num_experts = dispatch.num_experts;
  TORCH_CHECK(x_TD.dim() == 2 && x_TD.size(0) == dispatch.row_TK.size(0), "[grouped_experts] x must be [",
              dispatch.row_TK.size(0), ", D], got ", x_TD.sizes());
  TORCH_CHECK(weight_TK.sizes() == dispatch.row_TK.sizes(), "[grouped_experts] weight must be ",
              dispatch.row_TK.sizes(), ", got ", weight_TK.sizes());
  TORCH_CHECK(gate_up.dim() == 3 && gate_up.size(0) == num_experts && gate_up.size(1) % 2 == 0 &&
                  gate_up.size(2) == x_TD.size(1),
              "[grouped_experts] gate_up must be [", num_experts, ", 2 I, ", x_TD.size(1), "], got ", gate_up.sizes());
  TORCH_CHECK(down.dim() == 3 && down.size(0) == num_experts && down.size(1) == x_TD.size(1) &&
                  2 * down.size(2) == gate_up.size(1),
              "[grouped_experts] down must be [", num_experts, ", ", x_TD.size(1), ", ", gate_up.size(1) / 2, "], got ",
              down.sizes());
  check_lora("gate_up", gate_up_lora, gate_up);
  check_lora("down", down_lora, down);
  using Optional = std::optional<at::Tensor>;
  return ExpertsFunction::apply(
      x_TD, weight_TK, gate_up.input(), down.input(), gate_up_lora ? Optional(gate_up_lora->a_RK) : Optional(),
      gate_up_lora ? Optional(gate_up_lora->b_NR) : Optional(), down_lora ? Optional(down_lora->a_RK) : Optional(),
      down_lora ? Optional(down_lora->b_NR) : Optional(), dispatch, limit, gate_up_lora ? gate_up_lora->scale : 0.0,
      down_lora ? down_lora->scale : 0.0, PackedExperts{gate_up.packed, down.packed}, kept);
}

}  // namespace asterism::ops
