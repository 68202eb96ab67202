#pragma once

#include "asterism/model/config.h"

namespace asterism::model {

/// config.json in DeepSeek's spelling (model-spec 1.1): compress_ratios, num_hash_layers, rope_scaling, with unknown
/// keys of `config.raw` kept. What that spelling cannot say (sparse layers of another ratio than 4, hash routers behind
/// learned ones, YaRN in layers without compression) stays in Hugging Face's.
nlohmann::ordered_json config_to_native_json(const Config& config);

}  // namespace asterism::model
