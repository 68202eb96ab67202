#include "asterism/checkpoint/peft_names.h"

#include "asterism/model/lora.h"

namespace asterism::checkpoint {

using Matrix = ExpertPart::Matrix;

namespace {

std::string without_end(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

const char* leaf_of(Matrix matrix) {
  return matrix == Matrix::kGate ? "gate_proj" : matrix == Matrix::kUp ? "up_proj" : "down_proj";
}

}  // namespace

std::map<std::string, model::TensorSpec> projection_specs(const model::Config& config) {
  std::map<std::string, model::TensorSpec> specs;
  model::Weights weights;
  model::for_each_projection(config, weights,
                             [&](const model::TensorSpec& spec, model::Projection&) { specs[spec.name] = spec; });
  return specs;
}

std::string experts_module(const std::string& packed) {
  return without_end(packed, packed.ends_with(kGateUpEnd) ? kGateUpEnd : kDownEnd);
}

std::string adapter_path(const std::string& matrix, const Pairs& pairs) {
  if (!is_packed_experts(matrix)) return std::string(kAdapterRoot) + model::projection_path(matrix);
  const std::string experts = experts_module(matrix);
  const bool inner = matrix.ends_with(kGateUpEnd) && pairs.contains(experts + std::string(kDownEnd));
  return std::string(kAdapterRoot) + experts + std::string(inner ? kInnerWrapper : "");
}

std::string adapter_path_of_part(const CanonicalName& name) {
  return std::string(kAdapterRoot) + experts_module(name.tensor) + "." + std::to_string(name.part->expert) + "." +
         leaf_of(name.part->matrix);
}

}  // namespace asterism::checkpoint
