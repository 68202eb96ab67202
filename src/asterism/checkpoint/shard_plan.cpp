#include "asterism/checkpoint/shard_plan.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "asterism/checkpoint/safetensors.h"

namespace asterism::checkpoint {

namespace {

PlannedTensor planned(std::string name, at::ScalarType dtype, std::vector<int64_t> shape) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return {std::move(name), dtype, std::move(shape), bytes};
}

/// What is stored for a target: its codes or values and, if it has them, its scales.
std::vector<PlannedTensor> stored_of(const TargetTensor& tensor) {
  std::vector<PlannedTensor> stored = {planned(tensor.name, tensor.form.dtype, tensor.form.stored_shape(tensor.shape))};
  if (tensor.form.is_coded()) {
    stored.push_back(
        planned(tensor.scale_name, tensor.form.scale, tensor.form.scale_shape(tensor.shape, tensor.matrices)));
  }
  return stored;
}

std::string planned_file_name(size_t number, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[96];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

}  // namespace

uint64_t ShardPlan::bytes() const {
  uint64_t total = 0;
  for (const PlannedFile& file : files) total += file.bytes;
  return total;
}

ShardPlan plan_shards(const std::vector<TargetTensor>& tensors, uint64_t max_shard_bytes) {
  ShardPlan plan;
  std::vector<std::vector<PlannedTensor>> files(1);
  uint64_t filled = 0, total = 0;
  for (const TargetTensor& tensor : tensors) {
    uint64_t bytes = 0;
    const std::vector<PlannedTensor> stored = stored_of(tensor);
    for (const PlannedTensor& part : stored) bytes += part.bytes;
    if (!files.back().empty() && bytes > max_shard_bytes - std::min(filled, max_shard_bytes)) {
      files.emplace_back();
      filled = 0;
    }
    plan.placements.push_back({files.size() - 1});
    files.back().insert(files.back().end(), stored.begin(), stored.end());
    filled += bytes;
    total += bytes;
  }
  nlohmann::json weight_map = nlohmann::json::object();
  std::unordered_map<std::string, uint64_t> offsets;
  for (size_t i = 0; i < files.size(); ++i) {
    PlannedFile file{.name = planned_file_name(i + 1, files.size()), .header = plan_safetensors(files[i])};
    file.bytes = file.header.size();
    for (const PlannedTensor& part : files[i]) {
      TORCH_CHECK(offsets.emplace(part.name, part.offset).second, "[shard_plan] names must differ, got '", part.name,
                  "' twice");
      weight_map[part.name] = file.name;
      file.bytes += part.bytes;
    }
    plan.files.push_back(std::move(file));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    plan.placements[i].data = offsets.at(tensors[i].name);
    if (tensors[i].form.is_coded()) plan.placements[i].scale = offsets.at(tensors[i].scale_name);
  }
  if (files.size() > 1) {
    plan.index = nlohmann::json({{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}).dump(2) + "\n";
  }
  return plan;
}

}  // namespace asterism::checkpoint
