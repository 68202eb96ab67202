#include "asterism/ops/documents.h"

namespace asterism::ops {

Documents make_documents(const std::vector<int64_t>& lengths) {
  Documents documents;
  documents.offsets.push_back(0);
  for (const int64_t length : lengths) {
    TORCH_CHECK(length >= 1, "[documents] every document needs at least one token, got length ", length);
    documents.offsets.push_back(documents.offsets.back() + length);
  }
  documents.position_T = at::empty({documents.num_tokens()}, at::kLong);
  auto* position = documents.position_T.data_ptr<int64_t>();
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) *position++ = i;
  }
  return documents;
}

Windows make_windows(const Documents& documents, int64_t ratio) {
  TORCH_CHECK(ratio >= 1, "[windows] the compression ratio must be positive, got ", ratio);
  Windows windows;
  windows.ratio = ratio;
  windows.offsets.push_back(0);
  for (int64_t d = 0; d < documents.num_documents(); ++d) {
    const int64_t length = documents.offsets[d + 1] - documents.offsets[d];
    windows.offsets.push_back(windows.offsets.back() + length / ratio);
  }
  const int64_t num_entries = windows.num_entries(), num_tokens = documents.num_tokens();
  windows.first_token_C = at::empty({num_entries}, at::kLong);
  windows.position_C = at::empty({num_entries}, at::kLong);
  windows.has_previous_C = at::empty({num_entries}, at::kBool);
  windows.visible_begin_T = at::empty({num_tokens}, at::kLong);
  windows.visible_end_T = at::empty({num_tokens}, at::kLong);
  auto* first_token = windows.first_token_C.data_ptr<int64_t>();
  auto* position = windows.position_C.data_ptr<int64_t>();
  auto* has_previous = windows.has_previous_C.data_ptr<bool>();
  auto* begin = windows.visible_begin_T.data_ptr<int64_t>();
  auto* end = windows.visible_end_T.data_ptr<int64_t>();
  for (int64_t d = 0; d < documents.num_documents(); ++d) {
    const int64_t start = documents.offsets[d], length = documents.offsets[d + 1] - start;
    for (int64_t w = 0; w < length / ratio; ++w) {
      const int64_t c = windows.offsets[d] + w;
      first_token[c] = start + w * ratio;
      position[c] = w * ratio;
      has_previous[c] = w > 0;
    }
    for (int64_t t = 0; t < length; ++t) {
      begin[start + t] = windows.offsets[d];
      end[start + t] = windows.offsets[d] + (t + 1) / ratio;
    }
  }
  return windows;
}

}  // namespace asterism::ops
