#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/checkpoint/shards.h"
#include "tests/fuzz/fuzz.h"

namespace asterism::fuzz {

/// One entry of a safetensors header before it becomes text: each field may be any JSON.
struct LyingEntry {
  std::string name;
  std::string dtype, shape, offsets;  // JSON text
  std::string more = {};              // further members, each with a comma in front
};

/// A safetensors file in parts that can be changed one by one.
struct LyingFile {
  std::vector<LyingEntry> entries;
  std::string metadata = R"({"format":"pt"})";  // JSON text
  std::string data;

  /// The file, with a right length of the header.
  std::string bytes() const;
};

/// A valid file of a few tensors of all types, whose data are random bytes.
LyingFile valid_file(Dice& dice);

/// Valid parts after one to three lies about lengths, offsets, shapes, types and names, or after changes of bytes. Some
/// of them leave the file valid.
std::string lying_bytes(Dice& dice, LyingFile file);

/// A number or another value that a size, an offset or an id should not be; JSON text.
std::string hostile_value(Dice& dice);

/// Changes one to three places of a tree: another value, a key less, a key more, a value twice.
void lie_in(Dice& dice, nlohmann::ordered_json& tree);

/// The text of a tree after lies in it, or after changes of its text.
std::string lying_json(Dice& dice, const nlohmann::ordered_json& tree);

/// Takes the place of a file: nothing, a folder, a pipe, a device, a loop of links, a link to nothing, an empty file,
/// the file without its last byte, with bytes behind it, or, which is no lie, behind a link.
void replace_file(Dice& dice, const std::filesystem::path& file);

/// Runs `action` and tells whether it came to its end. An InputError is the other answer that is right: its text names
/// something below `folder` and is no longer than a screen. More than a second of work, or tensors of more than 64 MB,
/// for files this small are failures.
bool is_accepted(const std::filesystem::path& folder, const std::function<void()>& action);

/// Every tensor lies within its file, and its bytes can be read.
void expect_inside(const checkpoint::Source& source);

}  // namespace asterism::fuzz
