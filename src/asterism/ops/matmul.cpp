#include "asterism/ops/matmul.h"

#include <algorithm>

#include "asterism/ops/cpu/gemm_kernel.h"
#include "asterism/ops/cpu/level.h"

namespace asterism::ops {

namespace {

at::ScalarType operand_type(const at::Tensor& a, const at::Tensor& b) {
  return b.scalar_type() == at::kDouble ? at::kDouble : product_type(a.scalar_type());
}

// A product that is narrower than its sum is widened on the way (gemm.h): no copy.
at::Tensor factor(const at::Tensor& x, at::ScalarType type) {
  return type == at::kFloat && x.scalar_type() == at::kBFloat16 ? x : x.to(type);
}

ProductTerm factors(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return {factor(a, type), factor(b, type)};
}

// a [M, K] times b [K, N]
at::Tensor product(const at::Tensor& a, const at::Tensor& b, std::optional<at::ScalarType> out) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "[matmul] shapes do not fit: ", a.sizes(), " x ",
              b.sizes());
  const at::ScalarType result = out.value_or(a.scalar_type());
  at::ScalarType type = operand_type(a, b);
  // Where more than bf16 is asked for, an fp32 operand must not be rounded to bf16.
  if (type == at::kBFloat16 && result != at::kBFloat16 && b.scalar_type() != at::kBFloat16) type = at::kFloat;
  const bool rounds = type != at::kDouble && result == at::kBFloat16;
  const at::ScalarType written = rounds ? at::kBFloat16 : sum_type(type);
  const at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options().dtype(written));
  run_products({{.c = c, .terms = {factors(a, b, type)}}});
  return c.to(result);
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
  run_products({{.c = dst_MN, .terms = {{x_MK, w_NK.t()}}}});
}

at::Tensor matmul_batched(const at::Tensor& a_BMK, const at::Tensor& b_BKN) {
  TORCH_CHECK(a_BMK.dim() == 3 && b_BKN.dim() == 3 && a_BMK.size(0) == b_BKN.size(0) && a_BMK.size(2) == b_BKN.size(1),
              "[matmul] batched shapes do not fit: ", a_BMK.sizes(), " x ", b_BKN.sizes());
  const at::ScalarType type = operand_type(a_BMK, b_BKN);
  return at::bmm(a_BMK.to(type), b_BKN.to(type)).to(a_BMK.scalar_type());
}

void matmul_accumulate(const at::Tensor& dst_MN, const at::Tensor& a_MK, const at::Tensor& b_KN) {
  run_products({{.c = dst_MN, .terms = {{a_MK, b_KN}}, .add = true}});
}

ProductTerm factors_of(const at::Tensor& a, const at::Tensor& b) {
  return factors(a, b, operand_type(a, b));
}

at::ScalarType sum_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType product_type(at::ScalarType dtype) {
  return dtype == at::kBFloat16 && has_native_bf16() ? at::kBFloat16 : sum_type(dtype);
}

bool has_native_bf16() {
  return cpu::level() == cpu::Level::kAvx512Bf16;
}

std::string matmul_provider(at::ScalarType dtype) {
  if (!cpu::has_gemm() || dtype == at::kDouble) return "MKL";
  const bool native = dtype == at::kBFloat16 && has_native_bf16();
  const cpu::Level level = native ? cpu::level() : std::min(cpu::level(), cpu::Level::kAvx512);
  const std::string name(cpu::level_name(level));
  return dtype == at::kBFloat16 && !native ? name + ", widened to fp32" : name;
}

}  // namespace asterism::ops
