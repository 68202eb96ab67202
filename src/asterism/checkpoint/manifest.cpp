#include "asterism/checkpoint/manifest.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kHash = "xxh128";
constexpr const char* kRewrite = "the folder is damaged or was changed after it was written";

struct FileEntry {
  uint64_t bytes = 0;
  std::string hash;
};

std::map<std::string, FileEntry> read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  const auto json = parse_strict_json(read_text(path), path.string());
  const auto files = json.is_object() ? json.find("files") : json.end();
  if (!json.is_object() || files == json.end() || !files->is_object() || files->empty()) {
    input_error(path.string(), ": expected an object with 'files' (path -> size and checksum); ", kRewrite);
  }
  std::map<std::string, FileEntry> entries;
  for (const auto& [name, entry] : files->items()) {
    const fs::path relative = fs::path(name).lexically_normal();
    const bool inside = relative.is_relative() && !relative.empty() && *relative.begin() != "..";
    const bool whole = entry.is_object() && entry.contains("bytes") && entry["bytes"].is_number_unsigned() &&
                       entry.contains(kHash) && entry[kHash].is_string();
    if (!inside || !whole) {
      input_error(path.string(), ": files['", shortened(name),
                  "']: expected a file below the folder with 'bytes' and '", kHash, "', found ",
                  shortened(entry.dump()), "; ", kRewrite);
    }
    entries[name] = {entry["bytes"].get<uint64_t>(), entry[kHash].get<std::string>()};
  }
  return entries;
}

}  // namespace

void write_manifest(const fs::path& folder) {
  std::map<std::string, fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) found[entry.path().lexically_relative(folder).generic_string()] = entry.path();
  }
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, path] : found) {
    files[name] = {{"bytes", fs::file_size(path)}, {kHash, content_hash_of_file(path)}};
  }
  FileWriter writer(folder / kManifest);
  writer.write(nlohmann::ordered_json{{"files", files}}.dump(1) + "\n");
  writer.close();
}

void verify_manifest(const fs::path& folder) {
  ProblemList problems;
  for (const auto& [name, expected] : read_manifest(folder)) {
    const fs::path path = folder / name;
    std::error_code unknown;  // a link to itself, a name too long: nothing that can be read
    const bool present = fs::is_regular_file(path, unknown);
    if (!present) {
      problems.add("missing files", name);
    } else if (const uint64_t bytes = fs::file_size(path); bytes != expected.bytes) {
      problems.add("files of another size", text(name, ": expected ", expected.bytes, " bytes, found ", bytes));
    } else if (content_hash_of_file(path) != expected.hash) {
      problems.add("files of another content", text(name, ": its checksum is not the one in ", kManifest));
    }
  }
  problems.throw_if_any(folder.string() + ": not what was written", kRewrite);
}

}  // namespace asterism::checkpoint
