#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "asterism/model/config.h"
#include "asterism/model/placement.h"
#include "asterism/model/token_batch.h"
#include "asterism/ops/documents.h"
#include "asterism/ops/rope.h"

namespace asterism::model {

/// How a forward pass is computed.
struct ForwardOptions {
  at::ScalarType compute = at::kFloat;  // type of activations and matrix products: fp32, bf16, or fp64 in tests
  bool dense_attention = false;  // sparse layers attend to all visible entries, without the indexer's choice (7.4)
  bool indexer_kl = false;       // add the indexer's own loss (7.5)
  bool balance = false;          // add the sequence-wise balance loss (7.3)
  uint64_t seed = 0;             // of the run, and
  uint64_t step = 0;             // the optimizer step: together they name the dropout masks
  bool training = false;         // dropout is off otherwise

  /// Sees intermediate values by name ("layer.2.streams"); for tests and inspection. Nothing when empty.
  std::function<void(std::string_view name, const at::Tensor& value)> probe;
};

/// What all layers of a pass share: tables that depend on the documents only. Shared with the autograd nodes, which run
/// layers again in the backward; the configuration must live as long.
struct StreamContext {
  struct Compression {
    ops::Windows windows;
    ops::RopeTable table_C;
  };

  const Config& config;
  TokenBatch batch;
  ForwardOptions options;
  ops::RopeTable main_T;                       // layers without compression
  ops::RopeTable compress_T;                   // layers with compression
  std::map<int64_t, Compression> compression;  // by ratio
  std::shared_ptr<Placement> placement;        // none: all weights are here

  void probe(int64_t layer, std::string_view name, const at::Tensor& value) const;
};

std::shared_ptr<const StreamContext> make_stream_context(const Config& config, const TokenBatch& batch,
                                                         const ForwardOptions& options,
                                                         const std::shared_ptr<Placement>& placement = nullptr);

}  // namespace asterism::model
