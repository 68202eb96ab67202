#include "asterism/checkpoint/shards.h"

#include <nlohmann/json.hpp>
#include <set>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kShardsHint =
    "the download is incomplete or files of different checkpoints are mixed; fetch the missing files again";

/// Shard file -> the tensors that the index places there.
using ShardNames = std::map<std::string, std::set<std::string>>;

ShardNames read_index(const fs::path& path) {
  const Json index = parse_strict_json(read_text(path), path.string());
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    input_error(path.string(), ": expected an object with 'weight_map' (tensor name -> file), found none");
  }
  ShardNames shards;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      input_error(path.string(), ": weight_map['", shortened(name), "']: expected a file name, found ",
                  shortened(shard.dump()));
    }
    const auto& file = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(file)) {
      input_error(path.string(), ": weight_map['", shortened(name),
                  "']: expected the name of a file in the same folder, found ", shortened(shard.dump()));
    }
    shards[file].insert(name);
  }
  if (shards.empty()) input_error(path.string(), ": weight_map names no tensor");
  return shards;
}

}  // namespace

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Source Source::open(const fs::path& folder, const std::string& stem) {
  Source source;
  source.folder_ = folder;
  if (path_exists(folder / kConversionJournal)) {
    input_error(folder.string(), ": is a conversion that was not finished (it holds ", kConversionJournal,
                "); run the same asterism convert again, which continues it");
  }
  const fs::path single = folder / (stem + ".safetensors"), index = folder / (stem + ".safetensors.index.json");
  const bool has_single = path_exists(single), has_index = path_exists(index);
  if (!has_single && !has_index) {
    std::error_code unknown;
    input_error(folder.string(), ": expected ", single.filename().string(), " or ", index.filename().string(),
                ", found ", fs::is_directory(folder, unknown) ? "neither" : "no such folder",
                "; give the folder of a checkpoint");
  }
  if (has_single && has_index) {
    input_error(folder.string(), ": found both ", single.filename().string(), " and ", index.filename().string(),
                ", expected one of them; remove the one that does not belong to this checkpoint");
  }
  if (has_single) return of_file(single);

  ProblemList problems;
  for (const auto& [file, listed] : read_index(index)) {
    if (!path_exists(folder / file)) {
      problems.add("missing shards", text(file, " (", listed.size(), " tensors)"));
      continue;
    }
    const SafetensorsFile& shard = source.files_.emplace_back(SafetensorsFile::open(folder / file));
    for (const std::string& name : listed) {
      if (shard.find(name) == nullptr) problems.add("tensors listed in the index but absent", name + " in " + file);
      source.locations_[name] = source.files_.size() - 1;
    }
    for (const TensorInfo& info : shard.tensors()) {
      if (!listed.contains(info.name)) problems.add("tensors not listed in the index", info.name + " in " + file);
    }
  }
  problems.throw_if_any(index.string(), kShardsHint);
  return source;
}

Source Source::of_file(const fs::path& file) {
  Source source;
  source.folder_ = file.parent_path();
  source.files_.push_back(SafetensorsFile::open(file));
  for (const TensorInfo& info : source.files_[0].tensors()) source.locations_[info.name] = 0;
  return source;
}

std::vector<std::string> Source::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : locations_) names.push_back(name);
  return names;
}

const SafetensorsFile& Source::holder(const std::string& name) const {
  const auto found = locations_.find(name);
  if (found != locations_.end()) return files_[found->second];
  const std::string nearest = nearest_name(name, names());
  input_error(folder_.string(), ": has no tensor '", shortened(name), "'",
              nearest.empty() ? "" : "; the nearest is '" + nearest + "'");
}

const TensorInfo& Source::info(const std::string& name) const {
  return holder(name).info(name);
}

at::Tensor Source::tensor(const std::string& name) const {
  return holder(name).view(name);
}

void Source::release(const std::string& name, const at::Tensor& view) const {
  holder(name).release(view);
}

const fs::path& Source::file_of(const std::string& name) const {
  return holder(name).path();
}

}  // namespace asterism::checkpoint
