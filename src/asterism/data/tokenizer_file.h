#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::data {

/// The two long lists of a tokenizer.json, in the order of the file.
struct BpeTables {
  struct Entry {
    std::string token;
    int64_t id;
  };
  struct Merge {
    std::string left, right;
  };
  std::vector<Entry> vocab;
  std::vector<Merge> merges;
};

/// A tokenizer.json. Its long lists are most of it and are kept flat: as JSON values they would take five times as long
/// to read.
struct TokenizerFile {
  nlohmann::json rest;  // all but the entries of model.vocab and model.merges: these are empty here
  BpeTables tables;
};

/// Reads the text of a tokenizer.json; `name` stands for it in messages. InputError when it is no JSON, for an id that
/// is no integer and for a merge that is neither "left right" nor ["left", "right"].
TokenizerFile read_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace asterism::data
