#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "asterism/model/config.h"

namespace asterism::checkpoint {

/// The fixed inputs of a proof: documents of one stream, drawn from RandomStream(seed, "export_proof").
struct ProofInputs {
  uint64_t seed = 0;
  std::vector<int64_t> ids;
  std::vector<int64_t> lengths;  // of the documents
};

/// A document long enough for entries of every layer's compression, and short ones.
ProofInputs proof_inputs(const model::Config& config, uint64_t seed = 0);

/// One comparison of logits: `found` has to be at most `limit`, or above it.
struct ProofCheck {
  std::string name;  // "adapter", "file", "effect"
  std::string what;  // a sentence that is true when it holds
  double found = 0.0, limit = 0.0;
  bool above = false;

  bool holds() const { return above ? found > limit : found <= limit; }  // NaN never holds
};

/// What was compared after an export. Differences of logits are the largest |a - b| over the largest |b|.
struct Proof {
  ProofInputs inputs;
  double effect = 0.0;             // base + adapter against the base
  double error = 0.0;              // the result against base + adapter, with the experts and entries chosen there
  double error_own_choices = 0.0;  // the same, each with its own choices
  double reencoding = 0.0;         // the base alone in the forms of a merged checkpoint, against the base
  int64_t adapted = 0;             // matrices with a pair
  int64_t merged_in_fp32 = 0;      // of them, those that the check "adapter" of a merged checkpoint had memory for
  std::vector<ProofCheck> checks = {};

  bool holds() const;
  /// What does not hold, a line each.
  std::string failures() const;
};

/// Loads the base with the adapter that was exported, and with the one that was written, and compares their logits:
///   effect  the adapter changes the logits of the base at all
///   file    the written adapter gives the logits of the exported one
Proof prove_adapter(const std::filesystem::path& model, const std::filesystem::path& adapter,
                    const std::filesystem::path& written);

/// Loads the merged checkpoint alone, and the base with the adapter, and compares logits:
///   effect   as above
///   adapter  the base with the adapter merged in memory, in fp32 without rounding, gives the logits of the base with
///   the
///            adapter beside it (experts and indexed entries are chosen as there, since a tie that falls differently
///            says nothing about weights)
///   file     the file gives the logits of the adapter merged in memory and rounded to the forms of the file
/// `memory` is all that the proof may take; in the check "adapter", large matrices that it has no room for in fp32 keep
/// their pair.
Proof prove_merged(const std::filesystem::path& model, const std::filesystem::path& adapter,
                   const std::filesystem::path& merged, uint64_t memory);

/// Memory that a proof needs for weights of that many bytes in the files of the base and of the result (0 for an
/// adapter).
uint64_t proof_memory(const model::Config& config, uint64_t base_bytes, uint64_t result_bytes);

/// Bytes of all tensors in the files of a checkpoint.
uint64_t checkpoint_bytes(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
