#include "asterism/ops/cpu/compressor_kernel.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace asterism::ops::cpu {

namespace {

// Where the slots of entry w start in value and score, previous window first.
template <typename T>
void list_slots(const PoolArgs<T>& a, int64_t w, std::vector<int64_t>& slots) {
  const int64_t row = (a.overlap ? 2 : 1) * a.channels;
  slots.clear();
  if (a.overlap && a.has_previous[w]) {
    for (int64_t i = 0; i < a.ratio; ++i) slots.push_back(((w - 1) * a.ratio + i) * row);
  }
  for (int64_t i = 0; i < a.ratio; ++i) slots.push_back((w * a.ratio + i) * row + row - a.channels);
}

// top: maximum of the scores; sum: sum of exp(score - top)
template <typename T>
void softmax_statistics(const PoolArgs<T>& a, const std::vector<int64_t>& slots, T* top, T* sum) {
  std::copy_n(a.score + slots[0], a.channels, top);
  for (const int64_t slot : slots) {
    for (int64_t i = 0; i < a.channels; ++i) top[i] = std::max(top[i], a.score[slot + i]);
  }
  std::fill_n(sum, a.channels, T(0));
  for (const int64_t slot : slots) {
    for (int64_t i = 0; i < a.channels; ++i) sum[i] += std::exp(a.score[slot + i] - top[i]);
  }
}

}  // namespace

template <typename T>
void pool_windows(const PoolArgs<T>& a, int64_t begin, int64_t end) {
  std::vector<int64_t> slots;
  std::vector<T> top(a.channels), sum(a.channels);
  for (int64_t w = begin; w < end; ++w) {
    list_slots(a, w, slots);
    softmax_statistics(a, slots, top.data(), sum.data());
    T* entry = a.entry + w * a.channels;
    std::fill_n(entry, a.channels, T(0));
    for (const int64_t slot : slots) {
      for (int64_t i = 0; i < a.channels; ++i) {
        entry[i] += std::exp(a.score[slot + i] - top[i]) / sum[i] * a.value[slot + i];
      }
    }
  }
}

template <typename T>
void pool_windows_grad(const PoolGradArgs<T>& args, int64_t begin, int64_t end) {
  const PoolArgs<T>& a = args.forward;
  std::vector<int64_t> slots;
  std::vector<T> top(a.channels), sum(a.channels);
  for (int64_t w = begin; w < end; ++w) {
    list_slots(a, w, slots);
    softmax_statistics(a, slots, top.data(), sum.data());
    const T* entry = a.entry + w * a.channels;
    const T* grad_entry = args.grad_entry + w * a.channels;
    for (const int64_t slot : slots) {
      for (int64_t i = 0; i < a.channels; ++i) {
        const T weighted = std::exp(a.score[slot + i] - top[i]) / sum[i] * grad_entry[i];
        args.grad_value[slot + i] = weighted;
        args.grad_score[slot + i] = weighted * (a.value[slot + i] - entry[i]);
      }
    }
  }
}

template void pool_windows(const PoolArgs<float>&, int64_t, int64_t);
template void pool_windows(const PoolArgs<double>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<float>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu
