#include "asterism/train/checkpoint_size.h"

#include <functional>
#include <numeric>
#include <set>

#include "asterism/model/lora.h"
#include "asterism/train/parameters.h"

namespace asterism::train {

namespace {

constexpr uint64_t kNumberBytes = 4;
constexpr uint64_t kEntryBytes = 75;         // of a tensor in the header of a file, beside its name, about
constexpr uint64_t kAdapterEntryBytes = 95;  // with the prefix that PEFT gives names

int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

class Sum {
 public:
  void add_trained(const std::string& name, const std::vector<int64_t>& shape, bool adapter) {
    const int64_t numbers = elements(shape);
    const uint64_t bytes = kNumberBytes * static_cast<uint64_t>(numbers);
    size_.trained_numbers += numbers;
    size_.state_bytes += 3 * (bytes + name.size() + kEntryBytes);
    if (adapter) size_.adapter_bytes += bytes + name.size() + kAdapterEntryBytes;
  }

  void add_buffer(const model::TensorSpec& spec) {
    const uint64_t width = spec.role == model::TensorRole::kTable ? sizeof(int64_t) : kNumberBytes;
    size_.state_bytes += width * static_cast<uint64_t>(elements(spec.shape)) + spec.name.size() + kEntryBytes;
  }

  const CheckpointSize& result() const { return size_; }

 private:
  CheckpointSize size_;
};

}  // namespace

CheckpointSize checkpoint_size(const Recipe& recipe, const model::Config& config) {
  Sum sum;
  if (!recipe.lora) {
    const TrainedParts parts{recipe.model.indexer == IndexerMode::kKl, recipe.model.mtp_weight > 0.0};
    for (const model::TensorSpec& spec : model::tensor_specs(config)) {
      if (is_trained(spec, parts)) sum.add_trained(spec.name, spec.shape, /*adapter=*/false);
      if (is_buffer(spec)) sum.add_buffer(spec);
    }
    return sum.result();
  }
  const auto paths = model::match_targets(config, recipe.lora->config.targets);
  const std::set<std::string> adapted(paths.begin(), paths.end());
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    const std::string path = model::projection_path(spec.name);
    if (!adapted.contains(path)) continue;
    const model::LoraShapes shapes = model::lora_shapes(spec, recipe.lora->config.rank);
    sum.add_trained(path + ".lora_A.weight", shapes.a, /*adapter=*/true);
    sum.add_trained(path + ".lora_B.weight", shapes.b, /*adapter=*/true);
  }
  for (const model::TensorSpec& spec : model::match_modules(config, recipe.lora->config.modules_to_save)) {
    if (!is_buffer(spec)) sum.add_trained(spec.name, spec.shape, /*adapter=*/true);
  }
  return sum.result();
}

}  // namespace asterism::train
