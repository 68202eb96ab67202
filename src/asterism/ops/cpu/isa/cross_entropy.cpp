#include "asterism/ops/cpu/cross_entropy_kernel.h"

#include "asterism/ops/cpu/exp.h"
#include "asterism/ops/cpu/lanes.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

template <typename T>
T largest(const T* values, int64_t n) {
  T lane[kLanes];
  for (T& value : lane) value = values[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] = values[i + j] > lane[j] ? values[i + j] : lane[j];
  }
  for (int64_t j = 0; i < n; ++i, ++j) lane[j] = values[i] > lane[j] ? values[i] : lane[j];
  T top = lane[0];
  for (const T value : lane) top = value > top ? value : top;
  return top;
}

template <typename T>
bool is_first(const T* values, int64_t index, T value) {
  for (int64_t i = 0; i < index; ++i) {
    if (values[i] == value) return false;
  }
  return values[index] == value;
}

}  // namespace

template <typename T>
void cross_entropy_rows(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T* logits = args.logits + row * args.vocab_size;
    const int64_t target = args.target[row];
    const T weight = args.weight != nullptr ? args.weight[row] : T{1};
    const T top = largest(logits, args.vocab_size);
    const double picked = static_cast<double>(logits[target]) - static_cast<double>(top);
    args.correct[row] = is_first(logits, target, top);
    double sum;
    if (args.want_grad) {
      for (int64_t i = 0; i < args.vocab_size; ++i) logits[i] = exponential(logits[i] - top);
      sum = sum_terms<T>(args.vocab_size, [logits](int64_t i) { return logits[i]; });
      const T factor = static_cast<T>(static_cast<double>(weight) / sum);
      for (int64_t i = 0; i < args.vocab_size; ++i) logits[i] *= factor;
      logits[target] -= weight;
    } else {
      sum = sum_terms<T>(args.vocab_size, [logits, top](int64_t i) { return exponential(logits[i] - top); });
    }
    args.loss[row] = static_cast<double>(weight) * (__builtin_log(sum) - picked);
  }
}

template void cross_entropy_rows(const CrossEntropyArgs<float>&, int64_t, int64_t);
template void cross_entropy_rows(const CrossEntropyArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu::ASTERISM_ISA
