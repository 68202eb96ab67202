#include "asterism/checkpoint/fingerprint.h"

#include "asterism/checkpoint/shards.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kWhole = 64 << 10, kSample = 4 << 10;

std::string config_hash(const fs::path& path) {
  nlohmann::json config = parse_strict_json(read_text(path), path.string());
  if (!config.is_object()) input_error(path.string(), ": expected a JSON object, found ", config.type_name());
  for (const char* key : {"_name_or_path", "dtype", "torch_dtype", "transformers_version"}) config.erase(key);
  ContentHash hash;
  hash.update(config.dump());
  return hash.hex();
}

void add_sample(const at::Tensor& tensor, ContentHash& hash) {
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const uint64_t count = tensor.nbytes();
  if (count <= kWhole) {
    hash.update(bytes, count);
  } else {
    hash.update(bytes + (count - kSample) / 2, kSample);
  }
}

void add_name(const Source& source, const std::string& name, ContentHash& hash) {
  const TensorInfo& info = source.info(name);
  hash.update(text(name, " ", safetensors_dtype_name(info.dtype), " ", info.shape, "\n"));
}

}  // namespace

nlohmann::ordered_json base_fingerprint(const fs::path& folder) {
  const Source source = Source::open(folder);
  ContentHash hash;
  uint64_t bytes = 0, tensors = 0;
  for (const std::string& name : source.names()) {
    add_name(source, name, hash);
    const at::Tensor tensor = source.tensor(name);
    add_sample(tensor, hash);
    source.release(name, tensor);  // systems map megabytes around a page that is read
    bytes += source.info(name).bytes;
    ++tensors;
  }
  return {
      {"weights", hash.hex()}, {"config", config_hash(folder / "config.json")}, {"tensors", tensors}, {"bytes", bytes}};
}

nlohmann::ordered_json adapter_fingerprint(const fs::path& folder) {
  const Source source = Source::open(folder, "adapter_model");
  ContentHash hash;
  for (const std::string& name : source.names()) {
    add_name(source, name, hash);
    const at::Tensor tensor = source.tensor(name);
    hash.update(tensor.const_data_ptr(), tensor.nbytes());
    source.release(name, tensor);
  }
  return {{"weights", hash.hex()}, {"config", content_hash_of_file(folder / "adapter_config.json")}};
}

}  // namespace asterism::checkpoint
