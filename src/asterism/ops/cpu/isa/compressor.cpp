#include "asterism/ops/cpu/compressor_kernel.h"

#include "asterism/ops/cpu/exp.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

constexpr int64_t kStrip = 256;  // channels at a time: what belongs to a strip stays in the first cache

/// The slots of entry w, previous window first, and where their channels start in value and score.
struct Slots {
  int64_t first, count;  // tokens
  int64_t own;           // slots from this one on are tokens of window w itself
  int64_t row, own_column;

  template <typename T>
  Slots(const PoolArgs<T>& a, int64_t w)
      : first(w * a.ratio),
        count(a.ratio),
        own(0),
        row((a.overlap ? 2 : 1) * a.channels),
        own_column(row - a.channels) {
    if (a.overlap && a.has_previous[w]) first -= a.ratio, count += a.ratio, own = a.ratio;
  }
  int64_t start(int64_t slot) const { return (first + slot) * row + (slot < own ? 0 : own_column); }
};

template <typename T>
void take_larger(T* __restrict top, const T* __restrict score, int64_t n) {
  for (int64_t i = 0; i < n; ++i) top[i] = top[i] < score[i] ? score[i] : top[i];
}

template <typename T>
void largest_scores(const T* score, const Slots& slots, int64_t n, T* top) {
  for (int64_t i = 0; i < n; ++i) top[i] = score[slots.start(0) + i];
  for (int64_t slot = 1; slot < slots.count; ++slot) take_larger(top, score + slots.start(slot), n);
}

// sum += e, weighted += e value, e = exp(score - top)
template <typename T>
void add_slot(const T* __restrict score, const T* __restrict value, const T* __restrict top, int64_t n,
              T* __restrict sum, T* __restrict weighted) {
  for (int64_t i = 0; i < n; ++i) {
    const T e = exponential(score[i] - top[i]);
    sum[i] += e;
    weighted[i] += e * value[i];
  }
}

template <typename T>
void pool_strip(const PoolArgs<T>& a, const Slots& slots, int64_t column, int64_t n, T* entry) {
  T top[kStrip], sum[kStrip] = {}, weighted[kStrip] = {};
  const T *score = a.score + column, *value = a.value + column;
  largest_scores(score, slots, n, top);
  for (int64_t slot = 0; slot < slots.count; ++slot) {
    add_slot(score + slots.start(slot), value + slots.start(slot), top, n, sum, weighted);
  }
  for (int64_t i = 0; i < n; ++i) entry[i] = weighted[i] / sum[i];
}

// e = exp(score - top), sum += e
template <typename T>
void keep_slot(const T* __restrict score, const T* __restrict top, int64_t n, T* __restrict e, T* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) {
    e[i] = exponential(score[i] - top[i]);
    sum[i] += e[i];
  }
}

// grad_value holds e and becomes the gradient.
template <typename T>
void slot_grad(const T* __restrict value, const T* __restrict entry, const T* __restrict factor, int64_t n,
               T* __restrict grad_value, T* __restrict grad_score) {
  for (int64_t i = 0; i < n; ++i) {
    const T weighted = grad_value[i] * factor[i];
    grad_value[i] = weighted;
    grad_score[i] = weighted * (value[i] - entry[i]);
  }
}

template <typename T>
void pool_strip_grad(const PoolGradArgs<T>& args, const Slots& slots, int64_t column, int64_t n, const T* entry,
                     const T* grad_entry) {
  const PoolArgs<T>& a = args.forward;
  T top[kStrip], sum[kStrip] = {}, factor[kStrip];
  const T *score = a.score + column, *value = a.value + column;
  T *grad_value = args.grad_value + column, *grad_score = args.grad_score + column;
  largest_scores(score, slots, n, top);
  for (int64_t slot = 0; slot < slots.count; ++slot) {
    keep_slot(score + slots.start(slot), top, n, grad_value + slots.start(slot), sum);
  }
  for (int64_t i = 0; i < n; ++i) factor[i] = grad_entry[i] / sum[i];
  for (int64_t slot = 0; slot < slots.count; ++slot) {
    const int64_t at = slots.start(slot);
    slot_grad(value + at, entry, factor, n, grad_value + at, grad_score + at);
  }
}

/// Calls body(column, number of channels) strip by strip.
template <typename Body>
void for_each_strip(int64_t channels, const Body& body) {
  for (int64_t column = 0; column < channels; column += kStrip) {
    body(column, channels - column < kStrip ? channels - column : kStrip);
  }
}

}  // namespace

template <typename T>
void pool_windows(const PoolArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t w = begin; w < end; ++w) {
    const Slots slots(a, w);
    for_each_strip(a.channels, [&](int64_t column, int64_t n) {
      pool_strip(a, slots, column, n, a.entry + w * a.channels + column);
    });
  }
}

template <typename T>
void pool_windows_grad(const PoolGradArgs<T>& args, int64_t begin, int64_t end) {
  const PoolArgs<T>& a = args.forward;
  for (int64_t w = begin; w < end; ++w) {
    const Slots slots(a, w);
    for_each_strip(a.channels, [&](int64_t column, int64_t n) {
      const int64_t at = w * a.channels + column;
      pool_strip_grad(args, slots, column, n, a.entry + at, args.grad_entry + at);
    });
  }
}

template void pool_windows(const PoolArgs<float>&, int64_t, int64_t);
template void pool_windows(const PoolArgs<double>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<float>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu::ASTERISM_ISA
