#include "asterism/model/token_batch.h"

#include "asterism/ops/linear_cross_entropy.h"

namespace asterism::model {

namespace {

// values[t + ahead] where that lies in the document of t, otherwise `fill`.
at::Tensor shifted(const at::Tensor& value_T, const ops::Documents& documents, int64_t ahead, const at::Scalar& fill) {
  at::Tensor out_T = at::full_like(value_T, fill);
  for (int64_t d = 0; d < documents.num_documents(); ++d) {
    const int64_t begin = documents.offsets[d], end = documents.offsets[d + 1];
    if (end - begin <= ahead) continue;
    out_T.slice(0, begin, end - ahead).copy_(value_T.slice(0, begin + ahead, end));
  }
  return out_T;
}

int64_t count_targets(const at::Tensor& target_T) {
  return target_T.ne(ops::kIgnoredTarget).sum().item<int64_t>();
}

}  // namespace

int64_t TokenBatch::trained_tokens() const {
  return count_targets(target_T);
}

int64_t TokenBatch::mtp_trained_tokens() const {
  return count_targets(mtp_target_T);
}

TokenBatch make_token_batch(const at::Tensor& id_T, const at::Tensor& label_T, const std::vector<int64_t>& lengths,
                            const at::Tensor& weight_T, int64_t first_key) {
  TokenBatch batch;
  batch.documents = ops::make_documents(lengths);
  const int64_t num_tokens = batch.num_tokens();
  TORCH_CHECK(id_T.dim() == 1 && id_T.size(0) == num_tokens && label_T.sizes() == id_T.sizes(), "[token_batch] ids ",
              id_T.sizes(), " and labels ", label_T.sizes(), " must be [T] with T = ", num_tokens,
              ", the sum of the document lengths");
  batch.id_T = id_T.to(at::kLong).contiguous();
  const at::Tensor label_long_T = label_T.to(at::kLong);
  batch.target_T = shifted(label_long_T, batch.documents, 1, ops::kIgnoredTarget);
  batch.mtp_target_T = shifted(label_long_T, batch.documents, 2, ops::kIgnoredTarget);
  if (weight_T.defined()) {
    batch.weight_T = shifted(weight_T, batch.documents, 1, 0.0);
    batch.mtp_weight_T = shifted(weight_T, batch.documents, 2, 0.0);
  }
  batch.token_key_T = at::arange(first_key, first_key + num_tokens, at::kLong);
  return batch;
}

}  // namespace asterism::model
