#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace asterism::checkpoint {

/// Tells one base checkpoint from another by content, wherever it lies and however it is cut into shards:
///   "weights": hash of the name, dtype, shape and a sample of the bytes of every tensor, in the order of their names;
///   "config": hash of config.json without the keys that say how it was written; "tensors" and "bytes": their sums.
/// The sample is the whole of a tensor of up to 64 KiB, and 4 KiB from the middle of a larger one: about as much as is
/// read to open the files. Another training run, conversion or quantisation is noticed, for it changes every block of a
/// tensor; numbers changed by hand inside a large tensor may not be.
/// InputError when the folder holds no checkpoint.
nlohmann::ordered_json base_fingerprint(const std::filesystem::path& folder);

/// Tells one adapter from another by all of its content: "weights": hash of the names, dtypes, shapes and bytes of its
/// tensors; "config": hash of adapter_config.json. InputError when the folder holds no adapter.
nlohmann::ordered_json adapter_fingerprint(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
