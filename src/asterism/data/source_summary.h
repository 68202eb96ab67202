#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace asterism::data {

/// What a source of rows was recognised as, for the log: "chats.jsonl: chat rows in JSON Lines", "data: ShareGPT rows
/// in JSON Lines (gzip), 12 files". The first row that can be recognised speaks for all. `files` are those of `source`
/// (data_files.h). InputError when a file that is looked at cannot be opened.
std::string describe_source(const std::string& source, const std::vector<std::filesystem::path>& files);

}  // namespace asterism::data
