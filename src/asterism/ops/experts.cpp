#include "asterism/ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- rows -----------------------------------------------------------------------------------------------------------

struct Rows {
  int64_t expert, first, count;
  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, first, count); }
};

// The experts that have rows.
std::vector<Rows> busy_experts(const std::vector<int64_t>& offsets) {
  std::vector<Rows> busy;
  for (int64_t e = 0; e + 1 < static_cast<int64_t>(offsets.size()); ++e) {
    if (offsets[e + 1] > offsets[e]) busy.push_back({e, offsets[e], offsets[e + 1] - offsets[e]});
  }
  return busy;
}

// out[t] = sum over slots of rows[row_TK[t, slot]], in slot order: a gather, so no two additions race.
at::Tensor combine_rows(const at::Tensor& rows_RD, const at::Tensor& row_TK) {
  at::Tensor sum_TD =
      at::zeros({row_TK.size(0), rows_RD.size(1)}, rows_RD.options().dtype(sum_type(rows_RD.scalar_type())));
  for (int64_t k = 0; k < row_TK.size(1); ++k) sum_TD.add_(rows_RD.index_select(0, row_TK.select(1, k)));
  return sum_TD.to(rows_RD.scalar_type());
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

// ---- one packed matrix of all experts -------------------------------------------------------------------------------

// W [E, out, in] and its update, if it has one.
struct PackedMatrix {
  at::Tensor weight;
  std::optional<ExpertPair> lora;
};

// y_R = x_R W_eᵀ + scale (x_R A_eᵀ) B_eᵀ, expert by expert
at::Tensor multiply(const at::Tensor& x_RK, const PackedMatrix& matrix, const std::vector<Rows>& busy) {
  at::Tensor y_RN = at::empty({x_RK.size(0), matrix.weight.size(1)}, x_RK.options());
  for (const Rows& rows : busy) {
    const at::Tensor x = rows.of(x_RK), y = matmul_nt(x, matrix.weight[rows.expert]);
    if (!matrix.lora) {
      rows.of(y_RN).copy_(y);
      continue;
    }
    const at::Tensor hidden = matmul_nt(x, matrix.lora->a_ERK[rows.expert], sum_type(x.scalar_type()));
    rows.of(y_RN).copy_(matmul_nt(hidden, matrix.lora->b_ENR[rows.expert]).add_(y));
  }
  return y_RN;
}

// grad_x_R = grad_y_R W_e + scale (grad_y_R B_e) A_e
at::Tensor multiply_grad_x(const at::Tensor& grad_RN, const PackedMatrix& matrix, const std::vector<Rows>& busy) {
  at::Tensor grad_RK = at::empty({grad_RN.size(0), matrix.weight.size(2)}, grad_RN.options());
  for (const Rows& rows : busy) {
    const at::Tensor grad = rows.of(grad_RN), grad_x = matmul_nn(grad, matrix.weight[rows.expert]);
    if (!matrix.lora) {
      rows.of(grad_RK).copy_(grad_x);
      continue;
    }
    const at::Tensor hidden = matmul_nn(grad, matrix.lora->b_ENR[rows.expert], sum_type(grad.scalar_type()));
    rows.of(grad_RK).copy_(matmul_nn(hidden, matrix.lora->a_ERK[rows.expert]).add_(grad_x));
  }
  return grad_RK;
}

at::Tensor weight_grad(const at::Tensor& grad_RN, const at::Tensor& x_RK, const at::Tensor& weight,
                       const std::vector<Rows>& busy) {
  at::Tensor grad = at::zeros_like(weight);
  for (const Rows& rows : busy) {
    grad[rows.expert].copy_(matmul_tn(rows.of(grad_RN), rows.of(x_RK), weight.scalar_type()));
  }
  return grad;
}

// Gradients of A and B in PEFT's layout.
std::pair<at::Tensor, at::Tensor> lora_grad(const at::Tensor& grad_RN, const at::Tensor& x_RK, const ExpertPair& pair,
                                            double scale, const std::vector<Rows>& busy) {
  const at::ScalarType type = pair.a_ERK.scalar_type();
  at::Tensor grad_a = at::zeros_like(pair.a_ERK), grad_b = at::zeros_like(pair.b_ENR);
  for (const Rows& rows : busy) {
    const at::Tensor x = rows.of(x_RK), grad = rows.of(grad_RN);
    const at::Tensor a = pair.a_ERK[rows.expert], b = pair.b_ENR[rows.expert];
    grad_a[rows.expert].copy_(matmul_tn(matmul_nn(grad, b, type), x));
    grad_b[rows.expert].copy_(matmul_tn(grad, matmul_nt(x, a, type), type).mul_(scale));
  }
  const int64_t num_experts = grad_a.size(0), r = grad_a.size(1);
  return {grad_a.reshape({num_experts * r, grad_a.size(2)}),
          grad_b.permute({1, 2, 0}).reshape({grad_b.size(1), r * num_experts})};
}

// ---- activation -----------------------------------------------------------------------------------------------------

// The clamped halves of a gate_up output and what forward and backward make of them.
struct Activation {
  at::Tensor gate, up;  // before the clamps, fp32 (fp64)
  at::Tensor clamped_gate, clamped_up;
  at::Tensor sigmoid;  // of the clamped gate
};

Activation activate(const at::Tensor& gate_up_RJ, double limit) {
  const at::Tensor wide = gate_up_RJ.to(sum_type(gate_up_RJ.scalar_type()));
  const int64_t width = wide.size(1) / 2;
  Activation a{.gate = wide.narrow(1, 0, width),
               .up = wide.narrow(1, width, width),
               .clamped_gate = {},
               .clamped_up = {},
               .sigmoid = {}};
  a.clamped_gate = limit > 0 ? a.gate.clamp_max(limit) : a.gate;
  a.clamped_up = limit > 0 ? a.up.clamp(-limit, limit) : a.up;
  a.sigmoid = at::sigmoid(a.clamped_gate);
  return a;
}

at::Tensor weighted_output(const Activation& a, const at::Tensor& weight_R) {
  return a.clamped_gate * a.sigmoid * a.clamped_up * weight_R.unsqueeze(1);
}

struct ActivationGradients {
  at::Tensor gate_up_RJ, weight_R;
};

// At a clamp's exact limit the gradient passes.
ActivationGradients activation_grad(const Activation& a, const at::Tensor& weight_R, const at::Tensor& grad_RI,
                                    double limit) {
  const at::Tensor silu = a.clamped_gate * a.sigmoid;
  const at::Tensor weighted = grad_RI * weight_R.unsqueeze(1);
  at::Tensor gate = weighted * a.clamped_up * a.sigmoid * (1 + a.clamped_gate * (1 - a.sigmoid));
  at::Tensor up = weighted * silu;
  if (limit > 0) {
    gate.masked_fill_(a.gate > limit, 0);
    up.masked_fill_(a.up.abs() > limit, 0);
  }
  return {at::cat({gate, up}, 1), (grad_RI * silu * a.clamped_up).sum(1)};
}

// ---- the node -------------------------------------------------------------------------------------------------------

// One node for gather, both products, activation and combine: it keeps x and the gate_up output, where a composition
// would keep the gathered rows, both clamps, the activation and the unsummed outputs.
struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  using OptionalTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& weight_TK,
                            const at::Tensor& gate_up, const at::Tensor& down, const OptionalTensor& gate_up_a,
                            const OptionalTensor& gate_up_b, const OptionalTensor& down_a, const OptionalTensor& down_b,
                            const Dispatch& dispatch, double limit, double gate_up_scale, double down_scale) {
    const std::vector<Rows> busy = busy_experts(dispatch.offsets);
    const PackedMatrix first = packed(gate_up, gate_up_a, gate_up_b, gate_up_scale);
    const PackedMatrix second = packed(down, down_a, down_b, down_scale);
    const at::Tensor gate_up_RJ = multiply(x_TD.index_select(0, dispatch.token_R), first, busy);
    const at::Tensor weight_R = row_weights(weight_TK, dispatch.slot_R, x_TD);
    const at::Tensor hidden_RI = weighted_output(activate(gate_up_RJ, limit), weight_R).to(x_TD.scalar_type());

    ctx->save_for_backward({x_TD, weight_TK, gate_up, down, gate_up_a.value_or(at::Tensor()),
                            gate_up_b.value_or(at::Tensor()), down_a.value_or(at::Tensor()),
                            down_b.value_or(at::Tensor()), gate_up_RJ});
    ctx->saved_data["offsets"] = dispatch.offsets;
    ctx->saved_data["token"] = dispatch.token_R;
    ctx->saved_data["slot"] = dispatch.slot_R;
    ctx->saved_data["row"] = dispatch.row_TK;
    ctx->saved_data["limit"] = limit;
    ctx->saved_data["gate_up_scale"] = gate_up_scale;
    ctx->saved_data["down_scale"] = down_scale;
    return combine_rows(multiply(hidden_RI, second, busy), dispatch.row_TK);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x_TD = saved[0], &weight_TK = saved[1], &gate_up = saved[2], &down = saved[3];
    const double limit = ctx->saved_data["limit"].toDouble();
    const double gate_up_scale = ctx->saved_data["gate_up_scale"].toDouble();
    const double down_scale = ctx->saved_data["down_scale"].toDouble();
    const std::vector<Rows> busy = busy_experts(ctx->saved_data["offsets"].toIntVector());
    const at::Tensor token_R = ctx->saved_data["token"].toTensor(), slot_R = ctx->saved_data["slot"].toTensor();
    const PackedMatrix first = packed(gate_up, present(saved[4]), present(saved[5]), gate_up_scale);
    const PackedMatrix second = packed(down, present(saved[6]), present(saved[7]), down_scale);
    const std::array<bool, 8> needs = needed(ctx, first.lora.has_value(), second.lora.has_value());

    const at::Tensor grad_RD = grads[0].to(x_TD.scalar_type()).index_select(0, token_R);
    const Activation activation = activate(saved[8], limit);
    const at::Tensor weight_R = row_weights(weight_TK, slot_R, x_TD);
    variable_list result(12);
    if (needs[3] || needs[6] || needs[7]) {
      const at::Tensor hidden_RI = weighted_output(activation, weight_R).to(x_TD.scalar_type());
      if (needs[3]) result[3] = weight_grad(grad_RD, hidden_RI, down, busy);
      if (second.lora) set_lora_grad(result, 6, lora_grad(grad_RD, hidden_RI, *second.lora, down_scale, busy), saved);
    }
    const at::Tensor grad_RI = multiply_grad_x(grad_RD, second, busy).to(weight_R.scalar_type());
    const ActivationGradients inner = activation_grad(activation, weight_R, grad_RI, limit);
    const at::Tensor grad_RJ = inner.gate_up_RJ.to(x_TD.scalar_type());
    if (needs[0]) {
      result[0] = combine_rows(multiply_grad_x(grad_RJ, first, busy), ctx->saved_data["row"].toTensor());
    }
    if (needs[1]) {
      at::Tensor grad_weight = at::empty({weight_TK.numel()}, inner.weight_R.options());
      grad_weight.index_copy_(0, slot_R, inner.weight_R);
      result[1] = grad_weight.view(weight_TK.sizes()).to(weight_TK.scalar_type());
    }
    if (needs[2] || needs[4] || needs[5]) {
      const at::Tensor x_RD = x_TD.index_select(0, token_R);
      if (needs[2]) result[2] = weight_grad(grad_RJ, x_RD, gate_up, busy);
      if (first.lora) set_lora_grad(result, 4, lora_grad(grad_RJ, x_RD, *first.lora, gate_up_scale, busy), saved);
    }
    return result;
  }

 private:
  static OptionalTensor present(const at::Tensor& x) { return x.defined() ? OptionalTensor(x) : std::nullopt; }

  static PackedMatrix packed(const at::Tensor& weight, const OptionalTensor& a, const OptionalTensor& b, double scale) {
    if (!a) return {weight, std::nullopt};
    return {weight, unpack(*a, *b, weight.size(0), scale)};
  }

  static at::Tensor row_weights(const at::Tensor& weight_TK, const at::Tensor& slot_R, const at::Tensor& x_TD) {
    return weight_TK.reshape({-1}).index_select(0, slot_R).to(sum_type(x_TD.scalar_type()));
  }

  // Autograd counts edges of the tensors that are there; absent updates have none.
  static std::array<bool, 8> needed(AutogradContext* ctx, bool has_first, bool has_second) {
    std::array<bool, 8> needs{};
    size_t edge = 0;
    for (size_t i = 0; i < needs.size(); ++i) {
      const bool there = i < 4 || (i < 6 ? has_first : has_second);
      if (there) needs[i] = ctx->needs_input_grad(edge++);
    }
    return needs;
  }

  static void set_lora_grad(variable_list& result, size_t index, const std::pair<at::Tensor, at::Tensor>& grads,
                            const variable_list& saved) {
    result[index] = grads.first.to(saved[index].scalar_type());
    result[index + 1] = grads.second.to(saved[index + 1].scalar_type());
  }
};

void check_lora(const char* name, const std::optional<ExpertLora>& lora, const at::Tensor& packed) {
  if (!lora) return;
  const int64_t num_experts = packed.size(0);
  const at::Tensor &a = lora->a_RK, &b = lora->b_NR;
  TORCH_CHECK(a.dim() == 2 && a.size(1) == packed.size(2) && a.size(0) > 0 && a.size(0) % num_experts == 0,
              "[grouped_experts] A of the ", name, " update must be [", num_experts, " * r, ", packed.size(2),
              "], got ", a.sizes());
  TORCH_CHECK(b.dim() == 2 && b.size(0) == packed.size(1) && b.size(1) == a.size(0), "[grouped_experts] B of the ",
              name, " update must be [", packed.size(1), ", ", a.size(0), "], got ", b.sizes());
}

}  // namespace

at::Tensor grouped_experts(const at::Tensor& x_TD, const at::Tensor& weight_TK, const Dispatch& dispatch,
                           const at::Tensor& gate_up, const at::Tensor& down, double limit,
                           const std::optional<ExpertLora>& gate_up_lora, const std::optional<ExpertLora>& down_lora) {
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
      x_TD, weight_TK, gate_up, down, gate_up_lora ? Optional(gate_up_lora->a_RK) : Optional(),
      gate_up_lora ? Optional(gate_up_lora->b_NR) : Optional(), down_lora ? Optional(down_lora->a_RK) : Optional(),
      down_lora ? Optional(down_lora->b_NR) : Optional(), dispatch, limit, gate_up_lora ? gate_up_lora->scale : 0.0,
      down_lora ? down_lora->scale : 0.0);
}

}  // namespace asterism::ops
