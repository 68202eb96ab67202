#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "asterism/ops/documents.h"

namespace asterism::model {

/// A micro-batch as the model sees it: one stream of T tokens cut into documents (rows of a batch and documents packed
/// into a row alike). Padding is not part of it.
struct TokenBatch {
  at::Tensor id_T;  // int64
  ops::Documents documents;
  at::Tensor target_T;      // int64, label of the next token in the document, -100 where nothing is trained
  at::Tensor mtp_target_T;  // int64, label of the token after that
  at::Tensor weight_T;      // fp32 weight of the target, undefined = 1 everywhere
  at::Tensor mtp_weight_T;
  at::Tensor token_key_T;  // int64, names each token in the step, for dropout

  int64_t num_tokens() const { return documents.num_tokens(); }
  int64_t trained_tokens() const;
  int64_t mtp_trained_tokens() const;
};

/// ids and labels [T], documents by their lengths (their sum is T). Labels are aligned with the ids: labels[t] is
/// scored against the prediction made at t - 1; the first token of a document is never scored. `weights` [T] fp32
/// likewise, or undefined. `first_key` names the first token of the stream in the step.
TokenBatch make_token_batch(const at::Tensor& id_T, const at::Tensor& label_T, const std::vector<int64_t>& lengths,
                            const at::Tensor& weight_T = {}, int64_t first_key = 0);

}  // namespace asterism::model
