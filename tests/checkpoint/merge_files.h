#pragma once

// A base in any storage and adapters on it, for the tests of merging and of its proof.

#include <algorithm>
#include <memory>

#include "asterism/checkpoint/adapter_merge.h"
#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/merged_weights.h"
#include "tests/checkpoint/adapter_files.h"
#include "tests/support/conversions.h"

namespace asterism::checkpoint::merge_files {

namespace fs = std::filesystem;
using adapter_files::matrices;
using adapter_files::Names;

/// The storage of the release: experts FP4, dense matrices FP8, the rest BF16.
inline WriteOptions released_base(Spelling spelling = Spelling::kNative) {
  return {.spelling = spelling,
          .max_shard_bytes = 400'000,
          .storage = {.experts = Form::fp4(), .dense = Form::fp8(), .norms = at::kBFloat16}};
}

/// All matrices that can carry a pair.
inline Names every_matrix(const model::Config& config) {
  Names names;
  for (const auto& [name, spec] : projection_specs(config)) names.insert(name);
  return names;
}

/// Pairs on these matrices whose update is about `size` of the weights; the numbers follow from `seed`.
inline model::Weights pairs_of_size(const model::Config& config, const Names& names, double size, uint64_t seed = 7) {
  model::Weights weights = adapter_files::with_pairs(config, names, /*scale=*/2.0);
  model::for_each_projection(config, weights, [&](const model::TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    at::Tensor &a = projection.lora->a_RK, &b = projection.lora->b_NR;
    fill_normal(RandomStream(seed, "a:" + spec.name), a.data_ptr<float>(), a.numel(), 1.0);
    fill_normal(RandomStream(seed, "b:" + spec.name), b.data_ptr<float>(), b.numel(), size * 0.02);
  });
  return weights;
}

inline void write_pairs(const fs::path& folder, const model::Config& config, const model::Weights& pairs,
                        const std::vector<std::string>& modules_to_save = {}) {
  model::LoraConfig lora = adapter_files::rank_two();
  lora.modules_to_save = modules_to_save;
  write_adapter(folder, config, pairs, lora, "");
}

inline ConvertReport merge(const fs::path& base, const fs::path& adapter, const fs::path& target,
                           Spelling spelling = Spelling::kNative, const Storage& storage = {}, int workers = 3) {
  const auto edit = std::make_shared<const AdapterMerge>(adapter, model::read_config(base / "config.json"));
  return convert_checkpoint(
      base, target, {.spelling = spelling, .storage = storage, .max_shard_bytes = 500'000, .edit = edit}, workers);
}

/// All values of a checkpoint in fp32, tables included, by canonical name.
inline std::map<std::string, at::Tensor> loaded_values(const fs::path& folder) {
  const auto config = model::read_config(folder / "config.json");
  auto weights = read_weights(folder, config, {.matrix_dtype = at::kFloat}).weights;
  std::map<std::string, at::Tensor> values;
  model::for_each_tensor(config, weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { values[spec.name] = tensor; });
  return values;
}

/// What every tensor of a checkpoint is stored as.
inline std::map<std::string, Form> stored_forms(const fs::path& folder, const model::Config& config) {
  std::map<std::string, Form> forms;
  const BoundCheckpoint bound = bind_checkpoint(folder, config, /*equal_experts=*/true);
  for (const BoundTensor& tensor : bound.tensors) forms[tensor.spec.name] = tensor.first().form;
  return forms;
}

}  // namespace asterism::checkpoint::merge_files
