#include "asterism/cli/export_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "asterism/checkpoint/conversion_record.h"
#include "asterism/cli/convert_report.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"

namespace asterism::cli {
namespace fs = std::filesystem;
using checkpoint::EditCounts;

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNamedTensors = 5;
constexpr int64_t kFewChanged = 10;  // one in so many
constexpr double kHalfKept = 0.5;

std::string rounded_number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

std::string counts_text(const Survival& entry) {
  const EditCounts& counts = entry.counts;
  if (counts.adapted == 0) return "the adapter adds 0 to every weight";
  return text(counts.changed, " of ", counts.adapted, " adapted weights change (",
              percent(counts.changed, counts.adapted), "), ", rounded_number(100.0 * counts.kept()),
              " % of the adapter is kept");
}

std::string title(const Survival& entry) {
  return text(checkpoint::class_name(entry.type), " (", entry.tensors, "), ", entry.form, ": ");
}

bool vanishes(const Survival& entry) {
  const EditCounts& counts = entry.counts;
  if (counts.adapted == 0) return false;
  const bool few = counts.changed < counts.adapted / kFewChanged;
  return few || counts.kept() < kHalfKept || !entry.unchanged.empty();
}

std::string advice(const Survival& entry) {
  const std::string beside = "leave the adapter beside the weights (--to peft)";
  if (entry.type == checkpoint::TensorClass::kRest || entry.form == "F32") return beside;
  const char* option = entry.type == checkpoint::TensorClass::kExperts ? "--experts " : "--dense ";
  return text("keep more with ", option, entry.form == "BF16" ? "fp32" : "bf16", ", or ", beside);
}

}  // namespace

std::vector<Survival> survival_of(const std::vector<checkpoint::EditedTensor>& edited) {
  std::map<std::pair<checkpoint::TensorClass, std::string>, Survival> table;
  for (const checkpoint::EditedTensor& tensor : edited) {
    Survival& entry = table[{tensor.type, tensor.form}];
    entry.type = tensor.type;
    entry.form = tensor.form;
    ++entry.tensors;
    entry.counts += tensor.counts;
    if (tensor.counts.adapted > 0 && tensor.counts.changed == 0) entry.unchanged.push_back(tensor.name);
  }
  std::vector<Survival> survival;
  for (auto& [key, entry] : table) survival.push_back(std::move(entry));
  return survival;
}

std::string survival_lines(const std::vector<Survival>& survival) {
  std::string lines;
  for (const Survival& entry : survival) lines += "adapter in " + title(entry) + counts_text(entry) + "\n";
  return lines;
}

std::vector<std::string> survival_warnings(const std::vector<Survival>& survival) {
  std::vector<std::string> warnings;
  for (const Survival& entry : survival) {
    if (!vanishes(entry)) continue;
    std::string line = text("the adapter vanishes in rounding: ", title(entry), counts_text(entry));
    if (!entry.unchanged.empty()) line += text("; nothing is left in ", entry.unchanged.size(), " tensors:");
    for (size_t i = 0; i < std::min(entry.unchanged.size(), kNamedTensors); ++i) {
      line += (i == 0 ? " " : ", ") + entry.unchanged[i];
    }
    if (entry.unchanged.size() > kNamedTensors) line += text(" and ", entry.unchanged.size() - kNamedTensors, " more");
    warnings.push_back(line + "; " + advice(entry));
  }
  return warnings;
}

Json survival_json(const std::vector<Survival>& survival) {
  Json list = Json::array();
  for (const Survival& entry : survival) {
    list.push_back({{"class", checkpoint::class_name(entry.type)},
                    {"form", entry.form},
                    {"tensors", entry.tensors},
                    {"adapted", entry.counts.adapted},
                    {"changed", entry.counts.changed},
                    {"kept", entry.counts.kept()},
                    {"unchanged_tensors", entry.unchanged}});
  }
  return list;
}

Json proof_json(const checkpoint::Proof& proof) {
  Json checks = Json::array();
  for (const checkpoint::ProofCheck& check : proof.checks) {
    checks.push_back({{"name", check.name},
                      {"claim", check.what},
                      {"found", check.found},
                      {check.above ? "above" : "at_most", check.limit},
                      {"holds", check.holds()}});
  }
  return {{"holds", proof.holds()},
          {"effect", proof.effect},
          {"error", proof.error},
          {"error_own_choices", proof.error_own_choices},
          {"reencoding", proof.reencoding},
          {"adapted_matrices", proof.adapted},
          {"merged_in_fp32", proof.merged_in_fp32},
          {"checks", checks},
          {"seed", proof.inputs.seed},
          {"document_lengths", proof.inputs.lengths},
          {"ids", proof.inputs.ids}};
}

std::string proof_lines(const checkpoint::Proof& proof) {
  std::string lines = text("effect of the adapter on the logits: ", rounded_number(proof.effect),
                           "; error of the result: ", rounded_number(proof.error));
  if (proof.reencoding > 0.0) {
    lines += text(" (re-encoding the base alone: ", rounded_number(proof.reencoding), ")");
  }
  lines += "\n";
  for (const checkpoint::ProofCheck& check : proof.checks) {
    lines += text(check.holds() ? "proved: " : "NOT TRUE: ", check.what, " (", rounded_number(check.found), ", ",
                  check.above ? "above " : "at most ", rounded_number(check.limit), ")\n");
  }
  return lines;
}

Json files_json(const fs::path& folder) {
  std::map<std::string, checkpoint::ConvertedFile> converted;
  if (fs::exists(folder / "conversion.json")) converted = checkpoint::converted_files(folder);
  std::map<std::string, Json> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == kExportRecord) continue;  // of an earlier proof
    const auto found = converted.find(name);
    if (found != converted.end()) {
      files[name] = {{"bytes", found->second.bytes}, {"crc32c", found->second.checksum}};
    } else {
      files[name] = {{"bytes", fs::file_size(entry.path())}, {"xxh128", content_hash_of_file(entry.path())}};
    }
  }
  Json json = Json::object();
  for (const auto& [name, file] : files) json[name] = file;
  return json;
}

}  // namespace asterism::cli
