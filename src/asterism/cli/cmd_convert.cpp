#include <iostream>
#include <nlohmann/json.hpp>

#include "asterism/checkpoint/convert.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/convert_report.h"
#include "asterism/core/log.h"

namespace asterism::cli {

int run_convert(const ConvertArgs& args) {
  const checkpoint::ConvertRequest request = {
      .spelling = args.to == "native" ? checkpoint::Spelling::kNative : checkpoint::Spelling::kModule,
      .storage = storage_of_words(args.experts, args.dense, args.scales),
      .max_shard_bytes = shard_bytes_of(args.shard_size),
  };
  const auto report = checkpoint::convert_checkpoint(args.source, args.target, request, workers_of(args.workers));
  for (const std::string& note : report.notes) log_info(note);
  for (const std::string& warning : report.warnings) log_warning(warning);
  log_info(report.was_complete ? text(args.target, " is this conversion, complete already")
                               : text("wrote ", args.target));
  const uint64_t verified = args.verify ? checkpoint::verify_conversion(args.target) : 0;
  if (args.verify) log_info("all ", verified / 1'000'000, " MB read back as they were written");
  if (!args.json) {
    std::cout << class_lines(report);
    return kDone;
  }
  const nlohmann::ordered_json result = {{"target", args.target},           {"bytes", report.bytes},
                                         {"bytes_kept", report.bytes_kept}, {"verified_bytes", verified},
                                         {"warnings", report.warnings},     {"classes", classes_json(report)}};
  std::cout << result.dump(2) << "\n";
  return kDone;
}

}  // namespace asterism::cli
