#include "asterism/cli/convert_report.h"

#include <cstdio>

#include "asterism/checkpoint/shard_writer.h"
#include "asterism/cli/numbers.h"
#include "asterism/core/error.h"

namespace asterism::cli {

namespace {

using checkpoint::ConvertedClass;

std::optional<checkpoint::Form> wanted_form(const std::string& word, at::ScalarType scale) {
  if (word.empty()) return std::nullopt;
  return checkpoint::form_of_word(word, scale);
}

std::string describe_loss(const checkpoint::RecodingLoss& loss) {
  if (loss.changed == 0) return "exact";
  char relative[32];
  std::snprintf(relative, sizeof(relative), "%.3g", loss.largest_relative);
  std::string line = text("largest relative error ", relative, ", ", percent(loss.changed, loss.values), " of ",
                          loss.values, " values changed");
  if (loss.vanished > 0) line += text(", ", loss.vanished, " became 0");
  return line;
}

}  // namespace

checkpoint::Storage storage_of_words(const std::string& experts, const std::string& dense, const std::string& scales) {
  const at::ScalarType scale = scales == "f32" ? at::kFloat : at::kFloat8_e8m0fnu;
  return {.experts = wanted_form(experts, scale), .dense = wanted_form(dense, scale)};
}

uint64_t shard_bytes_of(const std::string& word) {
  const auto bytes = parse_bytes(word);
  if (!bytes || *bytes == 0) input_error("--shard-size: expected a size such as 5GB or 500MB, found ", word);
  return *bytes;
}

int workers_of(int64_t word) {
  return word > 0 ? static_cast<int>(word) : checkpoint::default_writer_threads();
}

std::string percent(int64_t part, int64_t whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return buffer;
}

std::string class_lines(const checkpoint::ConvertReport& report) {
  std::string lines;
  for (const ConvertedClass& entry : report.classes) {
    lines += text(checkpoint::class_name(entry.type), " (", entry.tensors, "), ", entry.from,
                  entry.from == entry.to ? "" : " -> " + entry.to, ": ", describe_loss(entry.loss), "\n");
  }
  return lines;
}

nlohmann::ordered_json classes_json(const checkpoint::ConvertReport& report) {
  auto classes = nlohmann::ordered_json::array();
  for (const ConvertedClass& entry : report.classes) {
    classes.push_back({{"class", checkpoint::class_name(entry.type)},
                       {"tensors", entry.tensors},
                       {"from", entry.from},
                       {"to", entry.to},
                       {"exact", entry.loss.changed == 0},
                       {"values", entry.loss.values},
                       {"changed", entry.loss.changed},
                       {"became_zero", entry.loss.vanished},
                       {"largest_relative_error", entry.loss.largest_relative}});
  }
  return classes;
}

}  // namespace asterism::cli
