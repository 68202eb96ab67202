#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "asterism/ops/sparse_attention.h"

namespace asterism::testing {

enum class AttentionKind { kWindowOnly, kAllVisible, kSelected };

struct AttentionCase {
  std::vector<int64_t> lengths;  // of the documents
  int64_t window = 0, ratio = 0;
  AttentionKind kind = AttentionKind::kWindowOnly;
  int64_t k = 0;  // list length of kSelected
};

/// Arguments of sparse_attention.
struct AttentionProblem {
  ops::Documents documents;
  ops::Windows windows;
  at::Tensor q, kv, entries, selected, sink;
  int64_t window = 0;
  double scale = 0.0;
  ops::RopeTable rotation;

  ops::SparseAttentionResult run() const;
  /// The same with its inputs rounded to `type`.
  AttentionProblem as(at::ScalarType type) const;
};

/// Random numbers in fp64. Every query picks some of the entries that it sees; every fifth query picks none.
AttentionProblem make_attention(const AttentionCase& c, int64_t heads, int64_t width);

/// The formulas of the contract, one query, head and key at a time in fp64, with visibility worked out from lengths
/// alone. Without the rotation.
ops::SparseAttentionResult literal_attention(const AttentionCase& c, const AttentionProblem& problem);

/// Of q, kv, sink and, if there are any, entries, under a fixed random cotangent of o.
std::vector<at::Tensor> attention_gradients(AttentionProblem problem);

}  // namespace asterism::testing
