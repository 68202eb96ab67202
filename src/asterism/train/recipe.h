#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "asterism/data/data_source.h"
#include "asterism/model/lora.h"
#include "asterism/model/recompute.h"

namespace asterism::train {

/// A run, as plain values: what the recipe file says after defaults and overrides (docs of every key: the recipe
/// reference in docs/recipe.md). The command line parses it; nothing below reads files or the environment for settings.

enum class Storage { kAuto, kFp32, kBf16, kFp8, kFp4 };
enum class Compute { kAuto, kFp32, kBf16 };
enum class IndexerMode { kFrozen, kKl };

struct ModelSection {
  std::string path;
  std::string tokenizer;  // folder or tokenizer.json; empty = model.path
  Storage storage = Storage::kAuto;
  Compute compute = Compute::kAuto;
  IndexerMode indexer = IndexerMode::kFrozen;
  double mtp_weight = 0.0;
};

struct DataSection {
  std::vector<data::DataSource> train;
  std::vector<std::string> eval;
  std::string variant = "auto";           // auto | v4-preview | v4-0731 | v4-flash-vision | v4.1
  std::string thinking = "auto";          // auto | chat | thinking
  std::string reasoning_effort = "none";  // none | low | high | max, or 1 to 100 (v4.1)
  bool drop_thinking = true;
  std::string history = "auto";              // auto | all | last_turn | split
  std::string special_in_content = "allow";  // allow | reject | as_text
  bool reject_unframeable = false;
  int64_t sequence_length = 4096;
  bool packing = true;
  std::string overlong = "error";        // error | drop | truncate
  std::string bad_rows = "error";        // error | skip
  std::string without_targets = "skip";  // skip | error
  bool shuffle = true;
  int64_t shuffle_buffer = 10000;  // samples held of a source that can be read in order only
  int64_t workers = 2;             // threads that prepare and read ahead; 0 = none
};

struct LoraSection {
  std::string from;  // PEFT adapter to continue; rank, alpha, rslora and targets then come from it
  model::LoraConfig config;
};

enum class Determinism {
  kFast,    // the same bits for the same layout
  kStrict,  // the same bits for every layout
};

struct TrainSection {
  int64_t steps = 0;  // exactly one of steps and epochs is set
  double epochs = 0.0;
  int64_t batch = 64;       // rows per optimizer step
  int64_t micro_batch = 1;  // rows computed at once
  model::Recompute recompute = model::Recompute::kBlocks;
  Determinism deterministic = Determinism::kFast;
  double balance_loss = 0.0;
};

/// Ranks by role (parallel/mesh.h); 0 = auto.
struct ParallelSection {
  int64_t expert = 1;
  int64_t shard = 0;
  int64_t replicate = 0;
};

struct OptimizerSection {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0 = off
};

enum class Decay { kCosine, kLinear, kConstant };

struct ScheduleSection {
  int64_t warmup_steps = 0;
  Decay decay = Decay::kCosine;
  double min_ratio = 0.1;
};

struct CheckpointSection {
  int64_t every = 500;  // 0 = only at the end
  int64_t keep = 2;
  std::string resume = "auto";  // auto | never | a folder
};

struct LogSection {
  int64_t every = 1;
  bool tensorboard = true;
};

struct Recipe {
  std::string name;
  std::string output = "runs";
  uint64_t seed = 0;
  ModelSection model;
  DataSection data;
  std::optional<LoraSection> lora;  // absent = full fine-tuning
  ParallelSection parallel;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  CheckpointSection checkpoint;
  int64_t eval_every = 0;
  LogSection log;
};

}  // namespace asterism::train
