#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <vector>

#include "asterism/ops/query_blocks.h"
#include "asterism/ops/rope.h"

namespace asterism::ops {

/// The checked arguments of sparse_attention, for its implementations.
struct AttentionInputs {
  at::Tensor q_THP, kv_TP, sink_H;
  at::Tensor entries_CP, selected_TK;  // each may be undefined
  VisibleEntries visible;              // defined with entries
  std::vector<int64_t> document_offsets;
  int64_t window = 0;
  double scale = 0.0;
  RopeTable rotation_T;  // o is turned back by it; undefined: it is not

  int64_t num_tokens() const { return q_THP.size(0); }
  int64_t num_heads() const { return q_THP.size(1); }
  int64_t width() const { return q_THP.size(2); }
  int64_t num_entries() const { return entries_CP.defined() ? entries_CP.size(0) : 0; }
  int64_t list_length() const { return selected_TK.defined() ? selected_TK.size(1) : -1; }
};

struct AttentionOutputs {
  at::Tensor o_THP, lse_TH;
};

/// Of q, kv, sink and entries: which gradients somebody asks for.
struct WantedGradients {
  bool q = false, kv = false, sink = false, entries = false;
};

struct AttentionGradients {
  at::Tensor q_THP, kv_TP, sink_H, entries_CP;  // undefined where nobody asks
};

}  // namespace asterism::ops
