#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::data {

/// Whether a file of this name is a data file: .jsonl, .ndjson, .json, each also with .gz or .zst, or .parquet.
bool is_data_file_name(std::string_view name);
/// Whether such a name promises one list: .json, also with .gz or .zst.
bool is_list_name(std::string_view name);

/// The data files that `source` names, sorted: a file; a folder (the data files directly in it; hidden files and other
/// files are left out); or a pattern with * ? [...], where ** stands for any number of folders, hidden ones excepted.
/// A file or folder of exactly this name goes before a pattern. InputError when there are none.
std::vector<std::filesystem::path> data_files(const std::string& source);

}  // namespace asterism::data
