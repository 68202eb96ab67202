#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/shard_writer.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/numbers.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"

namespace asterism::cli {

namespace {

using checkpoint::ConvertedClass;

std::optional<checkpoint::Form> wanted_form(const std::string& word, at::ScalarType scale) {
  if (word.empty()) return std::nullopt;
  return checkpoint::form_of_word(word, scale);
}

std::string percent(int64_t part, int64_t whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return buffer;
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

void print_report(const checkpoint::ConvertReport& report) {
  for (const ConvertedClass& entry : report.classes) {
    std::cout << checkpoint::class_name(entry.type) << " (" << entry.tensors << "), " << entry.from
              << (entry.from == entry.to ? "" : " -> " + entry.to) << ": " << describe_loss(entry.loss) << "\n";
  }
}

void print_report_json(const checkpoint::ConvertReport& report, const ConvertArgs& args, uint64_t verified) {
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
  const nlohmann::ordered_json result = {{"target", args.target},
                                         {"bytes", report.bytes},
                                         {"bytes_kept", report.bytes_kept},
                                         {"verified_bytes", verified},
                                         {"classes", classes}};
  std::cout << result.dump(2) << "\n";
}

}  // namespace

int run_convert(const ConvertArgs& args) {
  const auto shard_bytes = parse_bytes(args.shard_size);
  if (!shard_bytes || *shard_bytes == 0) {
    input_error("--shard-size: expected a size such as 5GB or 500MB, found ", args.shard_size);
  }
  const at::ScalarType scale = args.scales == "f32" ? at::kFloat : at::kFloat8_e8m0fnu;
  const checkpoint::ConvertRequest request = {
      .spelling = args.to == "native" ? checkpoint::Spelling::kNative : checkpoint::Spelling::kModule,
      .storage = {.experts = wanted_form(args.experts, scale), .dense = wanted_form(args.dense, scale)},
      .max_shard_bytes = *shard_bytes,
  };
  const int workers = args.workers > 0 ? static_cast<int>(args.workers) : checkpoint::default_writer_threads();
  const auto report = checkpoint::convert_checkpoint(args.source, args.target, request, workers);
  log_info(report.was_complete ? text(args.target, " is this conversion, complete already")
                               : text("wrote ", args.target));
  const uint64_t verified = args.verify ? checkpoint::verify_conversion(args.target) : 0;
  if (args.verify) log_info("all ", verified / 1'000'000, " MB read back as they were written");
  if (args.json) {
    print_report_json(report, args, verified);
  } else {
    print_report(report);
  }
  return kDone;
}

}  // namespace asterism::cli
