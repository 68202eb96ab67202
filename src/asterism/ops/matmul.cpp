#include "asterism/ops/matmul.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <cpuinfo.h>

namespace asterism::ops {

namespace {

// Measured (docs/numerics.md): on AMD processors with AVX-512 oneDNN multiplies fp32 twice as fast as MKL; on AVX2
// parts both are equal and MKL is better with transposed operands.
bool use_onednn_fp32() {
  static const bool yes = cpuinfo_initialize() && cpuinfo_get_cores_count() > 0 &&
                          cpuinfo_get_core(0)->vendor == cpuinfo_vendor_amd && cpuinfo_has_x86_avx512f();
  return yes;
}

// oneDNN has fast code for weights that are dense in either order. A slice of columns goes to its scalar reference,
// which takes a hundred times as long and says nothing.
at::Tensor dense(const at::Tensor& weight) {
  return weight.is_contiguous() || weight.t().is_contiguous() ? weight : weight.contiguous();
}

// a bᵀ through oneDNN, no packing.
at::Tensor onednn_nt(const at::Tensor& a, const at::Tensor& b) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                            c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>)>();
  return op.call(a, dense(b), std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), "");
}

at::ScalarType operand_type(const at::Tensor& a, const at::Tensor& b) {
  return b.scalar_type() == at::kDouble ? at::kDouble : product_type(a.scalar_type());
}

// a [M, K] times b [K, N]
at::Tensor product(const at::Tensor& a, const at::Tensor& b, std::optional<at::ScalarType> out) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "[matmul] shapes do not fit: ", a.sizes(), " x ",
              b.sizes());
  const at::ScalarType result = out.value_or(a.scalar_type());
  at::ScalarType type = operand_type(a, b);
  // A bf16 product would round its result to bf16: when fp32 is asked for, multiply in fp32.
  if (type == at::kBFloat16 && result != at::kBFloat16) type = at::kFloat;
  const at::Tensor left = a.to(type), right = b.to(type);
  if (type == at::kFloat && use_onednn_fp32() && a.size(0) > 0 && a.size(1) > 0 && b.size(1) > 0) {
    return onednn_nt(left, right.t()).to(result);
  }
  return at::mm(left, right).to(result);
}

}  // namespace

at::Tensor matmul_nt(const at::Tensor& x_MK, const at::Tensor& w_NK, std::optional<at::ScalarType> out) {
  return product(x_MK, w_NK.t(), out);
}

at::Tensor matmul_nn(const at::Tensor& x_MK, const at::Tensor& w_KN, std::optional<at::ScalarType> out) {
  return product(x_MK, w_KN, out);
}

at::Tensor matmul_tn(const at::Tensor& x_KM, const at::Tensor& w_KN, std::optional<at::ScalarType> out) {
  return product(x_KM.t(), w_KN, out);
}

void matmul_nt_out(const at::Tensor& dst_MN, const at::Tensor& x_MK, const at::Tensor& w_NK) {
  at::Tensor dst = dst_MN;
  if (dst.scalar_type() == at::kFloat && use_onednn_fp32()) {
    dst.copy_(product(x_MK, w_NK.t(), std::nullopt));  // oneDNN's operator has no form with a given result
  } else {
    at::mm_out(dst, x_MK, w_NK.t());
  }
}

at::Tensor matmul_batched(const at::Tensor& a_BMK, const at::Tensor& b_BKN) {
  TORCH_CHECK(a_BMK.dim() == 3 && b_BKN.dim() == 3 && a_BMK.size(0) == b_BKN.size(0) && a_BMK.size(2) == b_BKN.size(1),
              "[matmul] batched shapes do not fit: ", a_BMK.sizes(), " x ", b_BKN.sizes());
  const at::ScalarType type = operand_type(a_BMK, b_BKN);
  return at::bmm(a_BMK.to(type), b_BKN.to(type)).to(a_BMK.scalar_type());
}

void matmul_accumulate(const at::Tensor& dst_MN, const at::Tensor& a_MK, const at::Tensor& b_KN) {
  at::Tensor dst = dst_MN;
  // oneDNN's operator does not accumulate; a second pass over the result pays off when the product is long.
  const bool is_long = a_MK.size(1) >= 64;
  if (is_long && dst.scalar_type() == at::kFloat && use_onednn_fp32()) {
    dst.add_(product(a_MK, b_KN, std::nullopt));
  } else {
    dst.addmm_(a_MK, b_KN);
  }
}

at::ScalarType sum_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType product_type(at::ScalarType dtype) {
  return dtype == at::kBFloat16 && has_native_bf16() ? at::kBFloat16 : sum_type(dtype);
}

bool has_native_bf16() {
  static const bool yes = cpuinfo_initialize() && (cpuinfo_has_x86_avx512bf16() || cpuinfo_has_arm_bf16());
  return yes;
}

std::string matmul_provider(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return has_native_bf16() ? "oneDNN bf16" : "widened to fp32";
  return dtype == at::kFloat && use_onednn_fp32() ? "oneDNN" : "MKL";
}

}  // namespace asterism::ops
