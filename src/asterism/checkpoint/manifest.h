#pragma once

#include <filesystem>

namespace asterism::checkpoint {

/// Writes manifest.json: size and checksum (core/content_hash.h) of every file below `folder`, by relative path.
void write_manifest(const std::filesystem::path& folder);

/// Compares the files below `folder` with its manifest.json. InputError that names every file that is missing, has
/// another size or another content than was written. Files that the manifest does not name do not matter.
void verify_manifest(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
