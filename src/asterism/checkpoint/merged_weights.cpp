#include "asterism/checkpoint/merged_weights.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "asterism/checkpoint/names.h"

namespace asterism::checkpoint {
using model::TensorSpec;

namespace {

at::Tensor sum_of(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  return at::addmm(weight.to(at::kDouble), b.to(at::kDouble), a.to(at::kDouble), 1.0, scale).to(at::kFloat);
}

bool is_held_as(const ops::Matrix& weight, const Form& form) {
  if (!weight.packed) return !form.is_coded() && weight.plain.scalar_type() == form.dtype;
  const bool fp4 = weight.packed->format == ops::PackedFormat::kFp4;
  const bool fp32_scales = weight.packed->scales.scalar_type() == at::kFloat;
  return form == (fp4 ? Form::fp4() : Form::fp8(fp32_scales ? at::kFloat : at::kFloat8_e8m0fnu));
}

ops::Matrix rounded(const TensorSpec& spec, const at::Tensor& values, const Form& form) {
  if (!form.is_coded()) return values.to(form.dtype);
  const bool fp4 = form.coding == Form::Coding::kFp4;
  const int64_t parts = is_packed_experts(spec.name) ? static_cast<int64_t>(packed_matrices(spec.name).size()) : 1;
  return ops::pack(values.to(at::kFloat).contiguous(), fp4 ? ops::PackedFormat::kFp4 : ops::PackedFormat::kFp8,
                   form.scale == at::kFloat ? at::kFloat : at::kByte, parts);
}

}  // namespace

at::Tensor merged_values(const model::Projection& projection) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = projection.weight.to(at::kFloat);
  if (!projection.lora) return weight.clone();
  const ops::LoraPair& pair = *projection.lora;
  if (weight.dim() == 2) return sum_of(weight, pair.a_RK, pair.b_NR, pair.scale);
  const int64_t experts = weight.size(0), rank = pair.a_RK.size(0) / experts;
  const at::Tensor a_ERK = pair.a_RK.view({experts, rank, weight.size(2)});
  const at::Tensor b_NRE = pair.b_NR.view({weight.size(1), rank, experts});
  at::Tensor merged = at::empty_like(weight);
  for (int64_t e = 0; e < experts; ++e) {
    merged[e].copy_(sum_of(weight[e], a_ERK[e], b_NRE.select(2, e), pair.scale));
  }
  return merged;
}

int64_t merge_unrounded(const model::Config& config, model::Weights& weights, uint64_t bytes) {
  std::vector<std::pair<uint64_t, std::string>> sizes;
  model::for_each_projection(config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    const auto count = static_cast<uint64_t>(c10::multiply_integers(spec.shape));
    sizes.emplace_back(count * sizeof(float), spec.name);
  });
  std::ranges::sort(sizes);
  std::set<std::string> chosen;
  uint64_t total = 0;
  for (const auto& [size, name] : sizes) {
    if (size > bytes - total) break;
    total += size;
    chosen.insert(name);
  }
  model::for_each_projection(config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    if (!chosen.contains(spec.name)) return;
    projection.weight = merged_values(projection);
    projection.lora.reset();
  });
  return static_cast<int64_t>(chosen.size());
}

void merge_rounded(const model::Config& config, model::Weights& weights, const std::map<std::string, Form>& forms) {
  const at::NoGradGuard no_grad;
  std::set<std::string> done;
  model::for_each_projection(config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    done.insert(spec.name);
    const Form& form = forms.at(spec.name);
    if (!projection.lora && is_held_as(projection.weight, form)) return;
    projection.weight = rounded(spec, merged_values(projection), form);
    projection.lora.reset();
  });
  model::for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    if (done.contains(spec.name) || spec.role == model::TensorRole::kTable) return;
    const Form& form = forms.at(spec.name);
    const bool matrix = spec.role == model::TensorRole::kMatrix;
    tensor = rounded(spec, tensor, form).to(matrix ? exact_dtype(form) : at::kFloat);
  });
}

}  // namespace asterism::checkpoint
