#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

template <typename T>
struct CrossEntropyArgs {
  T* logits;              // [R, V]; with want_grad overwritten by weight * (softmax - onehot)
  const int64_t* target;  // [R], 0 .. V - 1
  const T* weight;        // [R], or null: 1
  double* loss;           // [R], overwritten: weight * (logsumexp - logit of the target)
  uint8_t* correct;       // [R], overwritten: 1 if the target is the first of the largest logits
  int64_t vocab_size;     // V
  bool want_grad;
};

/// Rows begin .. end - 1, each by one thread: the result does not depend on the number of threads, even for one row.
/// T is float or double.
template <typename T>
void cross_entropy_rows(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end);

}  // namespace asterism::ops::cpu
