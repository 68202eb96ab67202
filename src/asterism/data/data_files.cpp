#include "asterism/data/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWildcards = "*?[";
constexpr std::string_view kAnyFolders = "**";
constexpr const char* kKnown = ".jsonl, .ndjson or .json, also with .gz or .zst, or .parquet";

std::string_view without_compression(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

bool has_wildcard(const std::string& text) {
  return text.find_first_of(kWildcards) != std::string::npos;
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with(".") && is_data_file_name(name)) files.push_back(entry.path());
  }
  if (files.empty()) input_error(folder.string(), ": the folder holds no data file (", kKnown, ")");
  return files;
}

/// Adds the files below `folder` whose path matches the parts of a pattern from `part` on.
void add_matches(const fs::path& folder, const std::vector<std::string>& parts, size_t part,
                 std::vector<fs::path>& files) {
  const std::string& wanted = parts[part];
  const bool last = part + 1 == parts.size();
  if (!has_wildcard(wanted)) {
    const fs::path path = folder / wanted;
    if (!last && fs::is_directory(path)) add_matches(path, parts, part + 1, files);
    if (last && fs::is_regular_file(path)) files.push_back(path);
    return;
  }
  const bool any_folders = wanted == kAnyFolders;
  if (any_folders && !last) add_matches(folder, parts, part + 1, files);
  // An unreadable folder is an error: leaving it out would train on less than was asked for.
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder)) {
    const std::string name = entry.path().filename().string();
    if (::fnmatch(wanted.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    const fs::path path = folder / name;
    if (entry.is_directory()) {
      // A link to a folder above would lead in circles.
      if (any_folders && !entry.is_symlink()) add_matches(path, parts, part, files);
      if (!any_folders && !last) add_matches(path, parts, part + 1, files);
    } else if (last && entry.is_regular_file()) {
      files.push_back(path);
    }
  }
}

std::vector<fs::path> files_of_pattern(const fs::path& pattern) {
  std::vector<std::string> parts;
  for (const fs::path& part : pattern.relative_path()) parts.push_back(part.string());
  std::vector<fs::path> files;
  try {
    add_matches(pattern.root_path(), parts, 0, files);
  } catch (const fs::filesystem_error& error) {
    input_error(pattern.string(), ": ", error.path1().string(), " cannot be read: ", error.code().message());
  }
  if (files.empty()) input_error(pattern.string(), ": no file matches this pattern");
  return files;
}

}  // namespace

bool is_data_file_name(std::string_view name) {
  const std::string_view rest = without_compression(name);
  return rest.ends_with(".jsonl") || rest.ends_with(".ndjson") || rest.ends_with(".json") || name.ends_with(".parquet");
}

bool is_list_name(std::string_view name) {
  return without_compression(name).ends_with(".json");
}

std::vector<fs::path> data_files(const std::string& source) {
  std::vector<fs::path> files;
  if (fs::is_directory(source)) {
    files = files_of_folder(source);
  } else if (fs::exists(source)) {
    files = {source};
  } else if (has_wildcard(source)) {
    files = files_of_pattern(source);
  } else {
    input_error(source, ": no such data file or folder");
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace asterism::data
