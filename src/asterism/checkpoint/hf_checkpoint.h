#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/recoding.h"
#include "asterism/checkpoint/storage.h"
#include "asterism/model/config.h"
#include "asterism/model/slices.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

struct ReadOptions {
  /// Type of the matrices (TensorRole::kMatrix): F64, F32, F16 or BF16. When absent: as they are stored, FP8 and FP4 in
  /// the narrowest type that holds them exactly: BF16, or F32 where their scales are F32.
  /// All other floating tensors become fp32. With kDouble they become fp64 too: a model for numeric tests.
  std::optional<at::ScalarType> matrix_dtype = std::nullopt;
  /// Keeps the matrices of projections packed that are FP8 or FP4 in the files, or become it by `storage` (experts and
  /// dense matrices; another form than the files' is rounded to it). Not together with matrix_dtype.
  bool packed = false;
  Storage storage = {};
};

/// The type in which a tensor is kept that is not packed.
at::ScalarType kept_type(const BoundTensor& bound, const ReadOptions& options);

struct LoadedWeights {
  model::Weights weights;
  RecodingLoss rounded = {};       // by ReadOptions::storage
  std::vector<std::string> notes;  // what was detected and what was left aside, for the log
};

/// Reads the weights of a checkpoint folder (one file or shards; any spelling of names.h, any form of stored_tensor.h)
/// into memory of their own. Binding is strict. Missing, unknown and doubly spelled names, wrong shapes and dtypes, and
/// weights and scales that do not fit each other are collected and reported in one InputError. Another InputError: a
/// hash table that names an expert outside 0 .. E-1. MTP tensors of a model that has no MTP layers by its configuration
/// are left aside with a note.
LoadedWeights read_weights(const std::filesystem::path& folder, const model::Config& config,
                           const ReadOptions& options = {});

struct WriteOptions {
  Spelling spelling = Spelling::kSavePretrained;
  uint64_t max_shard_bytes = 5'000'000'000;
  Storage storage = {};  // as they are held where it says nothing
  bool replace = false;  // an existing folder is an InputError otherwise
};

/// Writes config.json and the weights into `folder`, which appears complete or not at all. All tensors of the model are
/// written, hash tables and router biases included; LoRA pairs are not, and are not merged either.
/// InputError for a storage that a matrix does not fit; RunError when something cannot be written, and for NaN and
/// infinities where FP8 or FP4 is to hold them.
void write_checkpoint(const std::filesystem::path& folder, const model::Config& config, const model::Weights& weights,
                      const WriteOptions& options = {});

/// The same for values that are not in memory, fp32 and int64 of tables: they are read while they are written, from
/// several threads, so that memory stays bounded.
void write_checkpoint(const std::filesystem::path& folder, const model::Config& config, model::SliceReader& values,
                      const WriteOptions& options = {});

/// The same for the weights that model::initialize_weights makes in `options.storage` (fp32 where it says nothing),
/// made chunk by chunk: a model of any size in bounded memory.
void write_initial_checkpoint(const std::filesystem::path& folder, const model::Config& config, uint64_t seed,
                              const WriteOptions& options = {});

}  // namespace asterism::checkpoint
