#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// The softmax pooling of the compressor (model-spec 2.4, 2.11), T = float or double. Per channel, entry w is the sum
/// of softmax(score) * value over its slots: the tokens of window w and, with overlap and when the window has a
/// predecessor in its document, those of window w - 1. With overlap a row holds two series: the first c channels speak
/// for the token as part of the previous window, the last c as part of its own. Both functions handle the entries begin
/// .. end - 1; any division into ranges gives the same bits.
template <typename T>
struct PoolArgs {
  const T* value;            // [C, ratio, co c], co = 2 with overlap, else 1
  const T* score;            // [C, ratio, co c]
  const bool* has_previous;  // [C], read only with overlap
  int64_t ratio;
  int64_t channels;  // c
  bool overlap;
  T* entry;  // [C, c], overwritten
};
template <typename T>
void pool_windows(const PoolArgs<T>& a, int64_t begin, int64_t end);

/// grad_value = P grad_entry, grad_score = P grad_entry (value - entry), P the softmax, computed again.
/// Every (token, channel) belongs to at most one entry; those that belong to none are left as they are: fill with 0.
template <typename T>
struct PoolGradArgs {
  PoolArgs<T> forward;  // entry holds the forward's result and is read
  const T* grad_entry;  // [C, c]
  T* grad_value;        // [C, ratio, co c]
  T* grad_score;        // [C, ratio, co c]
};
template <typename T>
void pool_windows_grad(const PoolGradArgs<T>& a, int64_t begin, int64_t end);

}  // namespace asterism::ops::cpu
