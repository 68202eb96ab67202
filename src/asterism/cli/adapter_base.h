#pragma once

#include <filesystem>
#include <string>

namespace asterism::cli {

/// Compares the checkpoint that an adapter names as its base with `model`, as far as both can be seen: `base` may be a
/// folder, or a name that means nothing here, which is logged. Other storage, layout, and a fine-tuned copy of the base
/// pass; InputError for weights that are not the same up to such changes, and for another vocabulary.
void check_adapter_base(const std::string& base, const std::filesystem::path& model);

}  // namespace asterism::cli
