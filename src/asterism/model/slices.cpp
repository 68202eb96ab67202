#include "asterism/model/slices.h"

#include "asterism/model/lora.h"

namespace asterism::model {

void for_each_named_slot(const Config& config, Weights& weights, const NamedSlotVisitor& visit) {
  const auto visit_defined = [&](const std::string& name, at::Tensor& slot) {
    if (slot.defined()) visit(name, slot);
  };
  for_each_projection(config, weights, [&](const TensorSpec& spec, Projection& projection) {
    if (projection.lora) {
      const std::string path = projection_path(spec.name);
      visit_defined(path + kLoraAEnd, projection.lora->a_RK);
      visit_defined(path + kLoraBEnd, projection.lora->b_NR);
    }
    if (projection.weight.packed) {
      visit_defined(spec.name + kCodesEnd, projection.weight.packed->codes);
      visit_defined(spec.name + kScalesEnd, projection.weight.packed->scales);
    }
  });
  for_each_tensor(config, weights,
                  [&](const TensorSpec& spec, at::Tensor& tensor) { visit_defined(spec.name, tensor); });
}

at::Tensor outline(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(at::kMeta));
}

bool is_outline(const ops::Matrix& weight) {
  return weight.packed ? weight.packed->codes.is_meta() : weight.plain.defined() && weight.plain.is_meta();
}

}  // namespace asterism::model
