#include "asterism/ops/linear.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "asterism/core/rng.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/packed_matmul.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows begin .. end - 1; one block of the generator decides on four channels.
template <typename T>
void drop_rows(const T* x, T* out, const int64_t* token, int64_t width, const Dropout& args, int64_t begin,
               int64_t end) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const RandomStream stream(args.key, "dropout");
  const uint64_t threshold = static_cast<uint64_t>(std::llround(args.probability * 0x1.0p32));
  const Real factor = static_cast<Real>(1.0 / (1.0 - args.probability));
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t c = 0; c < width; c += 4) {
      const auto bits = stream.block(static_cast<uint64_t>(token[row]), static_cast<uint64_t>(c / 4));
      for (int64_t i = c; i < std::min(c + 4, width); ++i) {
        const Real value = static_cast<Real>(x[row * width + i]) * factor;
        out[row * width + i] = bits[i - c] < threshold ? T(0) : static_cast<T>(value);
      }
    }
  }
}

at::Tensor drop(const at::Tensor& x_TK, const Dropout& args) {
  const at::Tensor x = x_TK.contiguous(), token_T = args.token_T.contiguous();
  at::Tensor out = at::empty_like(x);
  const int64_t width = x.size(1), grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, width));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "dropout", [&] {
    const scalar_t* in = x.const_data_ptr<scalar_t>();
    scalar_t* result = out.mutable_data_ptr<scalar_t>();
    const int64_t* token = token_T.const_data_ptr<int64_t>();
    at::parallel_for(0, x.size(0), grain,
                     [&](int64_t begin, int64_t end) { drop_rows(in, result, token, width, args, begin, end); });
  });
  return out;
}

void check_dropout(const at::Tensor& x_TK, const Dropout& args) {
  TORCH_CHECK(args.probability >= 0.0 && args.probability < 1.0, "[dropout] the probability must be in [0, 1), got ",
              args.probability);
  if (args.probability == 0.0) return;
  TORCH_CHECK(args.token_T.defined() && args.token_T.scalar_type() == at::kLong && args.token_T.dim() == 1 &&
                  args.token_T.size(0) == x_TK.size(0),
              "[dropout] token must be int64 [", x_TK.size(0), "], got ",
              args.token_T.defined() ? args.token_T.sizes() : at::IntArrayRef());
}

void save_dropout(AutogradContext* ctx, const Dropout& args) {
  ctx->saved_data["dropout_probability"] = args.probability;
  ctx->saved_data["dropout_key"] = static_cast<int64_t>(args.key);
}

Dropout saved_dropout(AutogradContext* ctx, const at::Tensor& token_T) {
  return {.probability = ctx->saved_data["dropout_probability"].toDouble(),
          .key = static_cast<uint64_t>(ctx->saved_data["dropout_key"].toInt()),
          .token_T = token_T};
}

// Own node: the mask is drawn again in the backward pass instead of being stored.
struct DropoutNode : torch::autograd::Function<DropoutNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TK, const Dropout& args) {
    ctx->save_for_backward({args.token_T});
    save_dropout(ctx, args);
    return drop(x_TK, args);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {drop(grads[0], saved_dropout(ctx, ctx->get_saved_variables()[0])), at::Tensor()};
  }
};

// dst += scale * thin * wide. In bf16 the product is added by a second pass, so that dst is rounded once.
void add_scaled_product(at::Tensor& dst_MN, const at::Tensor& thin_MR, const at::Tensor& wide_RN, double scale) {
  if (dst_MN.scalar_type() == at::kBFloat16) {
    dst_MN.add_(matmul_nn(thin_MR, wide_RN), scale);
  } else {
    matmul_accumulate(dst_MN, thin_MR * scale, wide_RN.to(dst_MN.scalar_type()));
  }
}

// Group number `group` of `groups` equal parts along `dim`.
at::Tensor part(const at::Tensor& tensor, int64_t dim, int64_t group, int64_t groups) {
  const int64_t length = tensor.size(dim) / groups;
  return tensor.narrow(dim, group * length, length);
}

// The same part of the rows of a weight.
Matrix part(const Matrix& w_MK, int64_t group, int64_t groups) {
  if (!w_MK.packed) return part(w_MK.plain, 0, group, groups);
  const int64_t length = w_MK.packed->rows() / groups;
  return w_MK.packed->rows_of(group * length, length);
}

at::Tensor times_transpose(const at::Tensor& x_TK, const Matrix& w_NK) {
  if (!w_NK.packed) return matmul_nt(x_TK, w_NK.plain);
  return packed_matmul_nt(x_TK, *w_NK.packed, RowRange{0, 0, x_TK.size(0)});
}

at::Tensor times(const at::Tensor& x_TN, const Matrix& w_NK) {
  if (!w_NK.packed) return matmul_nn(x_TN, w_NK.plain);
  return packed_matmul_nn(x_TN, *w_NK.packed, RowRange{0, 0, x_TN.size(0)});
}

// One part is the whole already: no copy.
at::Tensor join(const std::vector<at::Tensor>& parts, int64_t dim) {
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

struct LinearArgs {
  int64_t groups = 1;
  double lora_scale = 0.0;
  std::optional<Dropout> dropout;      // only with one group
  std::optional<PackedMatrix> packed;  // the weight, when it is packed: not an input that autograd could see
  Kept* kept = nullptr;
};

// Own node, for plain and grouped projections: saves x, the weights and H = x Aᵀ, and never forms W + scale * B A.
struct Linear : torch::autograd::Function<Linear> {
  // x_TJ [T, G * K], w_MK [G * N, K] (absent when packed), a_RK [r, K], b_MR [G * N, r] -> [T, G * N]
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TJ, const std::optional<at::Tensor>& w_MK,
                            const std::optional<at::Tensor>& a_RK, const std::optional<at::Tensor>& b_MR,
                            const LinearArgs& args) {
    const Matrix weight = args.packed ? Matrix(*args.packed) : Matrix(*w_MK);
    std::vector<at::Tensor> hidden;
    if (a_RK) hidden = lora_hidden(x_TJ, *a_RK, args);
    const at::Tensor y_TM = kept_or(args.kept, [&] { return Kept{values(x_TJ, weight, hidden, b_MR, args)}; })[0];
    // A frozen projection keeps no activation, and a projection of constants keeps no weight.
    const bool trained = w_MK && w_MK->requires_grad();
    const bool keep_x = trained || a_RK.has_value(), keep_w = x_TJ.requires_grad();
    ctx->save_for_backward({keep_x ? x_TJ : at::Tensor(), keep_w && w_MK ? *w_MK : at::Tensor(),
                            a_RK.value_or(at::Tensor()), b_MR.value_or(at::Tensor()),
                            a_RK ? join(hidden, 1) : at::Tensor(),
                            args.dropout ? args.dropout->token_T : at::Tensor()});
    ctx->saved_data["groups"] = args.groups;
    ctx->saved_data["lora_scale"] = args.lora_scale;
    if (trained) ctx->saved_data["w_type"] = w_MK->scalar_type();
    if (args.packed) ctx->saved_data["packed"] = to_ivalue(*args.packed);
    if (args.dropout) save_dropout(ctx, *args.dropout);
    return y_TM;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto kept = ctx->saved_data.find("packed");
    const bool packed = kept != ctx->saved_data.end();
    const Matrix weight = packed ? Matrix(packed_of(kept->second)) : Matrix(saved[1]);
    const at::Tensor &x_TJ = saved[0], &a_RK = saved[2], &b_MR = saved[3], &hidden = saved[4];
    std::optional<Dropout> dropout;
    if (saved[5].defined()) dropout = saved_dropout(ctx, saved[5]);
    const int64_t groups = ctx->saved_data["groups"].toInt();
    const double scale = ctx->saved_data["lora_scale"].toDouble();
    const bool lora = a_RK.defined();
    size_t edge = 0;  // autograd counts those of the tensors that are there
    const bool want_x = ctx->needs_input_grad(edge++), want_w = !packed && ctx->needs_input_grad(edge++);
    const bool want_a = lora && ctx->needs_input_grad(edge++), want_b = lora && ctx->needs_input_grad(edge++);
    std::vector<at::Tensor> grad_x, grad_w, grad_b;
    at::Tensor grad_a;
    for (int64_t g = 0; g < groups; ++g) {
      const at::Tensor grad_y = part(grads[0], 1, g, groups);
      const at::Tensor x_TK = want_w || want_a ? part(x_TJ, 1, g, groups) : at::Tensor();
      at::Tensor grad_hidden;  // without the factor `scale`
      if (lora && (want_x || want_a)) grad_hidden = matmul_nn(grad_y, part(b_MR, 0, g, groups));
      if (want_x) {
        grad_x.push_back(times(grad_y, part(weight, g, groups)));
        if (lora) add_lora_input_grad(grad_x.back(), grad_hidden, a_RK, scale, dropout);
      }
      if (want_w) grad_w.push_back(matmul_tn(grad_y, x_TK, ctx->saved_data["w_type"].toScalarType()));
      if (want_b) {
        const at::ScalarType type = sum_type(b_MR.scalar_type());
        grad_b.push_back(matmul_tn(grad_y, part(hidden, 1, g, groups), type).mul_(scale).to(b_MR.scalar_type()));
      }
      if (want_a) {
        const at::ScalarType type = sum_type(a_RK.scalar_type());
        const at::Tensor share = matmul_tn(grad_hidden, dropout ? drop(x_TK, *dropout) : x_TK, type);
        grad_a = grad_a.defined() ? grad_a.add_(share) : share;
      }
    }
    return {want_x ? join(grad_x, 1) : at::Tensor(), want_w ? join(grad_w, 0) : at::Tensor(),
            want_a ? grad_a.mul_(scale).to(a_RK.scalar_type()) : at::Tensor(), want_b ? join(grad_b, 0) : at::Tensor(),
            at::Tensor()};
  }

 private:
  // H of every group.
  static std::vector<at::Tensor> lora_hidden(const at::Tensor& x_TJ, const at::Tensor& a_RK, const LinearArgs& args) {
    std::vector<at::Tensor> hidden;
    for (int64_t g = 0; g < args.groups; ++g) {
      const at::Tensor x_TK = part(x_TJ, 1, g, args.groups);
      hidden.push_back(matmul_nt(args.dropout ? drop(x_TK, *args.dropout) : x_TK, a_RK));
    }
    return hidden;
  }

  static at::Tensor values(const at::Tensor& x_TJ, const Matrix& weight, const std::vector<at::Tensor>& hidden,
                           const std::optional<at::Tensor>& b_MR, const LinearArgs& args) {
    std::vector<at::Tensor> outputs;
    for (int64_t g = 0; g < args.groups; ++g) {
      outputs.push_back(times_transpose(part(x_TJ, 1, g, args.groups), part(weight, g, args.groups)));
      if (b_MR) add_scaled_product(outputs.back(), hidden[g], part(*b_MR, 0, g, args.groups).t(), args.lora_scale);
    }
    return join(outputs, 1);
  }

  static void add_lora_input_grad(at::Tensor& grad_x, const at::Tensor& grad_hidden, const at::Tensor& a_RK,
                                  double scale, const std::optional<Dropout>& dropout) {
    if (dropout) {
      grad_x.add_(drop(matmul_nn(grad_hidden, a_RK), *dropout), scale);
    } else {
      add_scaled_product(grad_x, grad_hidden, a_RK, scale);
    }
  }
};

at::Tensor apply_linear(const char* op, const at::Tensor& x_TJ, const Matrix& w_MK, const std::optional<LoraPair>& lora,
                        LinearArgs args) {
  const int64_t width = x_TJ.size(1) / args.groups;
  args.packed = w_MK.packed;
  TORCH_CHECK(w_MK.dim() == 2 && w_MK.size(1) == width && w_MK.size(0) % args.groups == 0, "[", op,
              "] the weight must be [", args.groups, " * N, ", width, "], got ", w_MK.sizes());
  if (!lora) return Linear::apply(x_TJ, w_MK.input(), std::optional<at::Tensor>(), std::optional<at::Tensor>(), args);
  const at::Tensor &a = lora->a_RK, &b = lora->b_NR;
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == width && b.size(0) == w_MK.size(0) && a.size(0) == b.size(1),
              "[", op, "] LoRA matrices must be A [r, ", width, "] and B [", w_MK.size(0), ", r], got ", a.sizes(),
              " and ", b.sizes());
  args.lora_scale = lora->scale;
  return Linear::apply(x_TJ, w_MK.input(), std::optional<at::Tensor>(a), std::optional<at::Tensor>(b), args);
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TK, const Matrix& w_NK) {
  return linear(x_TK, w_NK, {}, {});
}

at::Tensor linear(const at::Tensor& x_TK, const Matrix& w_NK, const std::optional<LoraPair>& lora,
                  const std::optional<Dropout>& dropout, Kept* kept) {
  TORCH_CHECK(x_TK.dim() == 2, "[linear] x must be [T, K], got ", x_TK.sizes());
  LinearArgs args;
  args.kept = kept;
  if (lora && dropout) {
    check_dropout(x_TK, *dropout);
    if (dropout->probability > 0.0) args.dropout = dropout;
  }
  return apply_linear("linear", x_TK, w_NK, lora, args);
}

at::Tensor grouped_linear(const at::Tensor& x_TGK, const Matrix& w_MK, const std::optional<LoraPair>& lora) {
  TORCH_CHECK(x_TGK.dim() == 3 && x_TGK.size(1) > 0, "[grouped_linear] x must be [T, G, K] with G > 0, got ",
              x_TGK.sizes());
  const int64_t groups = x_TGK.size(1);
  const at::Tensor x_TJ = x_TGK.reshape({x_TGK.size(0), groups * x_TGK.size(2)});
  return apply_linear("grouped_linear", x_TJ, w_MK, lora,
                      {.groups = groups, .lora_scale = 0.0, .dropout = {}, .packed = {}, .kept = nullptr});
}

at::Tensor dropout(const at::Tensor& x_TK, const Dropout& args) {
  TORCH_CHECK(x_TK.dim() == 2, "[dropout] x must be [T, K], got ", x_TK.sizes());
  check_dropout(x_TK, args);
  return args.probability == 0.0 ? x_TK : DropoutNode::apply(x_TK, args);
}

}  // namespace asterism::ops
