#pragma once

// Adapters for tests: pairs on chosen matrices, and the golden adapter to be changed.

#include <nlohmann/json.hpp>
#include <set>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint::adapter_files {

using asterism::testing::error_of;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;
using Json = nlohmann::json;
using Names = std::set<std::string>;

inline const char* const kLora = "hf/all_paths/lora";
inline const std::string kRoot = "base_model.model.";

inline model::Config all_paths() {
  return model::read_config(golden("hf/all_paths/config.json"));
}

inline bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

/// Weights without tensors that carry LoRA pairs of rank 2 on the named matrices.
inline model::Weights with_pairs(const model::Config& config, const Names& names, double scale) {
  model::Weights weights;
  model::for_each_projection(config, weights, [&](const model::TensorSpec& spec, model::Projection& projection) {
    if (!names.contains(spec.name)) return;
    const bool packed = spec.shape.size() == 3;
    const int64_t rows = packed ? spec.shape[0] * 2 : 2;
    projection.lora = ops::LoraPair{.a_RK = at::randn({rows, spec.shape.back()}),
                                    .b_NR = at::randn({spec.shape[packed ? 1 : 0], rows}),
                                    .scale = scale};
  });
  return weights;
}

/// The names of the matrices that have one of these leaves, in the given layers.
inline Names matrices(const std::vector<std::string>& leaves, const std::vector<int>& layers) {
  Names names;
  for (const int layer : layers) {
    for (const std::string& leaf : leaves) names.insert("model.layers." + std::to_string(layer) + "." + leaf);
  }
  return names;
}

inline model::LoraConfig rank_two() {
  model::LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 4.0;
  return lora;
}

/// Tensors and config of the golden adapter, to be changed and written elsewhere.
struct StoredAdapter {
  std::map<std::string, at::Tensor> tensors;
  Json config;

  StoredAdapter() : config(Json::parse(read_text(golden(kLora) / "adapter_config.json"))) {
    const Source source = Source::open(golden(kLora), "adapter_model");
    for (const std::string& name : source.names()) tensors[name] = source.tensor(name).clone();
  }

  void write(const TemporaryFolder& folder) const {
    std::vector<NamedTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
    write_safetensors(folder / "adapter_model.safetensors", list);
    folder.write("adapter_config.json", config.dump());
  }

  std::string error() const {
    const TemporaryFolder folder;
    write(folder);
    return error_of<InputError>([&] { read_adapter(folder.path(), all_paths()); });
  }
};

}  // namespace asterism::checkpoint::adapter_files
