#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/export_proof.h"

namespace asterism::cli {

/// The file beside a result that says what was proved of it.
inline constexpr const char* kExportRecord = "export.json";

/// What rounding left of an adapter in the tensors of one class that are stored alike.
struct Survival {
  checkpoint::TensorClass type = checkpoint::TensorClass::kExperts;
  std::string form;  // Form::text
  int64_t tensors = 0;
  checkpoint::EditCounts counts = {};
  std::vector<std::string> unchanged = {};  // tensors of which nothing is left
};

/// By class and form, in the order of the classes.
std::vector<Survival> survival_of(const std::vector<checkpoint::EditedTensor>& edited);

/// "experts (8), FP4: 12 of 98304 adapted weights change ..", a line each.
std::string survival_lines(const std::vector<Survival>& survival);

/// One for each class in which the adapter vanishes in rounding: a tensor of which nothing is left, fewer than a tenth
/// of the adapted weights changed, or less than half of the change kept.
std::vector<std::string> survival_warnings(const std::vector<Survival>& survival);

nlohmann::ordered_json survival_json(const std::vector<Survival>& survival);
nlohmann::ordered_json proof_json(const checkpoint::Proof& proof);

/// "effect: .. holds", a line for each comparison.
std::string proof_lines(const checkpoint::Proof& proof);

/// Size and checksum of every file of a folder but kExportRecord, by name: the CRC-32C of conversion.json where that
/// has it, otherwise XXH3 of 128 bits.
nlohmann::ordered_json files_json(const std::filesystem::path& folder);

}  // namespace asterism::cli
