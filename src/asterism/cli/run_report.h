#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/train/loop.h"

namespace asterism::cli {

/// report.json of a run, by make_run_report: versions, machine, layout, totals, throughput, peak memory, final losses.
/// SI units. What was not computed in this process (losses when no step was left, evaluations without data) has no key.
/// What the report tells of a model before ranks share it.
struct RunFacts {
  int64_t trained_numbers = 0;
  nlohmann::ordered_json weight_bytes = {};
  parallel::Mesh mesh = {};
};
RunFacts run_facts(const model::Model& model, const std::vector<train::Parameter>& parameters,
                   const parallel::Mesh& mesh);

nlohmann::ordered_json make_run_report(const train::Recipe& recipe, const RunFacts& facts,
                                       const train::LoopInputs& inputs, const train::LoopSummary& summary);

/// Memory of the weights by how they are kept, in one line.
std::string describe_weights(const model::Model& model);

/// A run in a few lines for the console.
std::vector<std::string> describe_run(const train::Recipe& recipe, const train::RunFolder& folder,
                                      const train::LoopSummary& summary);

/// Adapted paths with the layer number folded: "model.layers.*.self_attn.q_a_proj (5)".
std::vector<std::string> summarise_paths(const std::vector<std::string>& paths);

}  // namespace asterism::cli
