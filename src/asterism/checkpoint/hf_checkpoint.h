#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/names.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

struct ReadOptions {
  /// Type of the matrices (TensorRole::kMatrix): F64, F32, F16 or BF16; as they are stored when absent.
  /// All other floating tensors become fp32. With kDouble they become fp64 too: a model for numeric tests.
  std::optional<at::ScalarType> matrix_dtype = std::nullopt;
};

struct ReadResult {
  model::Weights weights;
  std::vector<std::string> notes;  // what was left aside, for the log
};

/// Reads the weights of a checkpoint folder (one file or shards; any spelling of names.h) into memory of their own.
/// Binding is strict. Missing, unknown and doubly spelled names, wrong shapes and dtypes are collected and reported in
/// one InputError. Further InputErrors: quantised tensors (F8, int8, companions .scale), which cannot be read, and a
/// hash table that names an expert outside 0 .. E-1. MTP tensors of a model that has no MTP layers by its configuration
/// are left aside with a note.
ReadResult read_weights(const std::filesystem::path& folder, const model::Config& config,
                        const ReadOptions& options = {});

struct WriteOptions {
  Spelling spelling = Spelling::kSavePretrained;
  uint64_t max_shard_bytes = 5'000'000'000;
  /// Type of the matrices in the file; as they are held when absent.
  std::optional<at::ScalarType> matrix_dtype = std::nullopt;
  bool replace = false;  // an existing folder is an InputError otherwise
};

/// Writes config.json and the weights into `folder`, which appears complete or not at all. All tensors of the model are
/// written, hash tables and router biases included; LoRA pairs are not, and are not merged either.
/// RunError when something cannot be written.
void write_checkpoint(const std::filesystem::path& folder, const model::Config& config, const model::Weights& weights,
                      const WriteOptions& options = {});

}  // namespace asterism::checkpoint
