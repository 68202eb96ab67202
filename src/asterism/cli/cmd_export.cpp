#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "asterism/checkpoint/adapter_merge.h"
#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/export_proof.h"
#include "asterism/checkpoint/fingerprint.h"
#include "asterism/cli/adapter_base.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/convert_report.h"
#include "asterism/cli/export_report.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/memory.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMegabyte = 1'000'000;

/// What the result lies in until it is proved.
fs::path unproven_folder(const ExportArgs& args) {
  const fs::path out = fs::path(args.out).lexically_normal();
  return (out.has_filename() ? out : out.parent_path()).string() + ".unproven";
}

void check_export_options(const ExportArgs& args) {
  const std::pair<const char*, const std::string&> of_merged[] = {{"--layout", args.layout},
                                                                  {"--experts", args.experts},
                                                                  {"--dense", args.dense},
                                                                  {"--scales", args.scales},
                                                                  {"--shard-size", args.shard_size}};
  for (const auto& [name, value] : of_merged) {
    if (args.to == "peft" && !value.empty()) input_error(name, " is about weights; it goes with --to merged only");
  }
  if (args.to == "peft" && args.workers != 0) input_error("--workers is about weights; it goes with --to merged only");
  if (args.to == "merged" && !args.profile.empty()) input_error("--profile is about adapters; it goes with --to peft");
  if (fs::exists(args.out)) input_error(args.out, ": exists already; choose another folder or remove it first");
}

/// Before the work: whether the proof fits into memory. Returns what it may take.
uint64_t memory_for_proof(const ExportArgs& args, const model::Config& config, uint64_t result_bytes) {
  if (args.no_proof) return 0;
  const uint64_t available = available_memory_bytes();
  const uint64_t needed = checkpoint::proof_memory(config, checkpoint::checkpoint_bytes(args.model), result_bytes);
  if (available == 0) return std::numeric_limits<uint64_t>::max();
  log_info("the proof at the end needs about ", needed / kMegabyte, " MB of memory, ", available / kMegabyte,
           " MB are available");
  if (needed <= available) return available;
  input_error("the proof at the end loads the model: it needs about ", needed / kMegabyte, " MB of memory, and ",
              available / kMegabyte,
              " MB are available. Export on a machine with more memory, or without proof by "
              "--no-proof, which ",
              kExportRecord, " will then say");
}

Json begin_record(const ExportArgs& args, const Json& adapter_mark) {
  return {{"version", 1},
          {"program", ASTERISM_VERSION},
          {"to", args.to},
          {"model", {{"path", args.model}, {"fingerprint", checkpoint::base_fingerprint(args.model)}}},
          {"adapter", {{"path", args.adapter}, {"fingerprint", adapter_mark}}}};
}

/// Writes the record beside the result. When all holds, the folder gets its name; otherwise it keeps the one it has.
void finish(const ExportArgs& args, const Json& record, const std::string& failures) {
  const fs::path unproven = unproven_folder(args);
  write_text_atomically(unproven / kExportRecord, record.dump(1) + "\n");
  if (!failures.empty()) {
    throw VerificationError(text("the export does not hold: ", failures, "\nThe files are left in ", unproven.string(),
                                 ", with what was found in ", kExportRecord));
  }
  sync_path(unproven);
  std::error_code failure;
  fs::rename(unproven, args.out, failure);
  if (failure) run_error(args.out, ": cannot give the folder its name: ", failure.message());
  const fs::path parent = unproven.parent_path();
  sync_path(parent.empty() ? fs::path(".") : parent);
  log_info("wrote ", args.out);
}

/// The proof's part of the record; adds to `failures`.
Json describe_proof(const std::optional<checkpoint::Proof>& proof, std::string& failures) {
  if (!proof) {
    log_warning("not proved, as --no-proof says: nothing was loaded again, and no logits were compared");
    return {{"skipped", "--no-proof"}};
  }
  const std::string found = proof->failures();
  failures += (failures.empty() || found.empty() ? "" : "\n") + found;
  if (proof->merged_in_fp32 < proof->adapted && proof->checks.size() > 2) {
    log_warning(
        "memory was enough to merge ", proof->merged_in_fp32, " of ", proof->adapted,
        " matrices without rounding, for the comparison with the adapter; the others were compared rounded only");
  }
  return proof_json(*proof);
}

void print_result(const ExportArgs& args, const Json& record, const std::string& lines) {
  if (args.json) {
    std::cout << record.dump(2) << "\n";
  } else {
    std::cout << lines;
  }
}

/// Numbers of an adapter in fp32; single experts have the lora_A of gate and up twice.
uint64_t adapter_file_bytes(const checkpoint::BoundAdapter& tensors, bool per_expert) {
  uint64_t bytes = 0;
  for (const auto& [name, pair] : tensors.pairs) {
    const bool twice = per_expert && name.ends_with(checkpoint::kGateUpEnd);
    bytes += pair.a_RK.nbytes() * (twice ? 2 : 1) + pair.b_NR.nbytes();
  }
  for (const auto& [name, tensor] : tensors.saved) bytes += tensor.nbytes();
  return bytes;
}

int export_adapter(const ExportArgs& args, const model::Config& config) {
  const bool per_expert = args.profile == "per-expert";
  const checkpoint::AdapterMerge adapter(args.adapter, config);
  if (!args.any_base) check_adapter_base(adapter.adapter().config.base_model.value_or(""), args.model);
  check_free_space(args.out, adapter_file_bytes(adapter.adapter().tensors, per_expert));
  memory_for_proof(args, config, 0);
  Json record = begin_record(args, adapter.mark());
  record["profile"] = per_expert ? "per-expert" : "peft";

  model::Weights pairs;  // without the model's tensors
  const checkpoint::LoadedAdapter loaded = checkpoint::load_adapter(args.adapter, config, pairs);
  const fs::path unproven = unproven_folder(args);
  const bool replace = fs::exists(unproven / "adapter_config.json");  // of an attempt before; nothing else is ours
  checkpoint::write_adapter(unproven, config, pairs, loaded.lora, args.model, replace,
                            per_expert ? checkpoint::AdapterLayout::kPerExpert : checkpoint::AdapterLayout::kPeft);
  record["files"] = files_json(unproven);
  std::optional<checkpoint::Proof> proof;
  if (!args.no_proof) proof = checkpoint::prove_adapter(args.model, args.adapter, unproven);
  std::string failures;
  record["proof"] = describe_proof(proof, failures);
  print_result(args, record, proof ? proof_lines(*proof) : "");
  finish(args, record, failures);
  return kDone;
}

checkpoint::Spelling spelling_of(const ExportArgs& args) {
  if (args.layout == "native") return checkpoint::Spelling::kNative;
  if (args.layout == "hf") return checkpoint::Spelling::kModule;
  return checkpoint::own_spelling(checkpoint::Source::open(args.model).names());
}

const char* layout_name(checkpoint::Spelling spelling) {
  return spelling == checkpoint::Spelling::kNative ? "native" : "hf";
}

/// What the counts alone say against a merged checkpoint.
std::string vanished(const std::vector<Survival>& survival) {
  int64_t adapted = 0, changed = 0;
  for (const Survival& entry : survival) {
    adapted += entry.counts.adapted;
    changed += entry.counts.changed;
  }
  if (changed > 0) return "";
  if (adapted == 0) return "the adapter adds 0 to every weight: there is nothing to merge";
  return text("the adapter vanished in rounding: none of ", adapted, " adapted weights changed");
}

int export_merged(const ExportArgs& args, const model::Config& config) {
  const auto merge = std::make_shared<const checkpoint::AdapterMerge>(args.adapter, config);
  if (!args.any_base) check_adapter_base(merge->adapter().config.base_model.value_or(""), args.model);
  const checkpoint::ConvertRequest request = {
      .spelling = spelling_of(args),
      .storage = storage_of_words(args.experts, args.dense, args.scales),
      .max_shard_bytes = shard_bytes_of(args.shard_size.empty() ? "5GB" : args.shard_size),
      .edit = merge};
  const uint64_t memory = memory_for_proof(args, config, checkpoint::converted_bytes(args.model, request));
  Json record = begin_record(args, merge->mark());
  record["layout"] = layout_name(request.spelling);

  const fs::path unproven = unproven_folder(args);
  const auto report = checkpoint::convert_checkpoint(args.model, unproven, request, workers_of(args.workers));
  for (const std::string& note : report.notes) log_info(note);
  const std::vector<Survival> survival = survival_of(report.edited);
  std::vector<std::string> warnings = report.warnings;
  for (const std::string& warning : survival_warnings(survival)) warnings.push_back(warning);
  std::string failures = vanished(survival);
  std::optional<checkpoint::Proof> proof;
  if (!args.no_proof) {
    checkpoint::verify_conversion(unproven);
    proof = checkpoint::prove_merged(args.model, args.adapter, unproven, memory);
    if (proof->error >= proof->effect) {
      warnings.push_back(text("rounding moves the logits by ", proof->error, ", the adapter by ", proof->effect,
                              ": the merged model is no closer to the adapted one than its base"));
    }
  }
  for (const std::string& warning : warnings) log_warning(warning);
  record["warnings"] = warnings;
  record["classes"] = classes_json(report);
  record["adapted"] = survival_json(survival);
  record["bytes"] = report.bytes;
  record["files"] = files_json(unproven);
  record["proof"] = describe_proof(proof, failures);
  print_result(args, record, class_lines(report) + survival_lines(survival) + (proof ? proof_lines(*proof) : ""));
  finish(args, record, failures);
  return kDone;
}

}  // namespace

int run_export(const ExportArgs& args) {
  check_export_options(args);
  const model::Config config = model::read_config(fs::path(args.model) / "config.json");
  return args.to == "peft" ? export_adapter(args, config) : export_merged(args, config);
}

}  // namespace asterism::cli
