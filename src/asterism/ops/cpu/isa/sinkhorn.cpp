#include "asterism/ops/cpu/exp.h"
#include "asterism/ops/cpu/sinkhorn_steps.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int64_t kVectorBytes = 32;
#else
constexpr int64_t kVectorBytes = 16;
#endif

/// Some lanes of an element. Vectors in the language: loops over lanes would have to prove to the compiler that their
/// arrays do not overlap.
template <typename T>
struct LanesOf {
  typedef T Type __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
  static constexpr int64_t kCount = kVectorBytes / static_cast<int64_t>(sizeof(T)), kParts = kSinkhornLanes / kCount;
};
template <typename T>
using Lanes = typename LanesOf<T>::Type;

/// One part of the lanes of each of an array's elements. Parts do not influence each other.
template <typename T>
struct Part {
  Lanes<T>* first;

  Part(T* values, int64_t part) : first(reinterpret_cast<Lanes<T>*>(values) + part) {}
  explicit Part(Lanes<T>* start) : first(start) {}
  Lanes<T>& operator[](int64_t element) const { return first[element * LanesOf<T>::kParts]; }
  Part operator+(int64_t elements) const { return Part(&(*this)[elements]); }
};

/// SinkhornTrace for one part.
template <typename T>
struct PartTrace {
  int64_t num_streams, num_steps;
  T eps;
  Part<T> softmax, output, denominator;

  PartTrace(const SinkhornTrace<T>& trace, int64_t part)
      : num_streams(trace.num_streams),
        num_steps(trace.num_steps),
        eps(trace.eps),
        softmax(trace.softmax, part),
        output(trace.output, part),
        denominator(trace.denominator, part) {}
};

// e = exp(x - top); sum += e
template <typename T>
void add_exponentials(const Lanes<T>& x, const Lanes<T>& top, Lanes<T>& e, Lanes<T>& sum) {
  for (int64_t l = 0; l < LanesOf<T>::kCount; ++l) e[l] = exponential(x[l] - top[l]);
  sum += e;
}

// block = softmax over k + eps
template <typename T>
void softmax_rows(const PartTrace<T>& trace, Part<T> block) {
  const int64_t n = trace.num_streams;
  for (int64_t j = 0; j < n; ++j) {
    const Part<T> row = block + j * n, softmax = trace.softmax + j * n;
    Lanes<T> top = row[0], sum = {};
    for (int64_t k = 1; k < n; ++k) top = top < row[k] ? row[k] : top;
    for (int64_t k = 0; k < n; ++k) add_exponentials<T>(row[k], top, softmax[k], sum);
    for (int64_t k = 0; k < n; ++k) {
      softmax[k] /= sum;
      row[k] = softmax[k] + trace.eps;
    }
  }
}

template <typename T>
void softmax_rows_grad(const PartTrace<T>& trace, Part<T> grad) {
  const int64_t n = trace.num_streams;
  for (int64_t j = 0; j < n; ++j) {
    const Part<T> row = grad + j * n, softmax = trace.softmax + j * n;
    Lanes<T> sum = {};
    for (int64_t k = 0; k < n; ++k) sum += row[k] * softmax[k];
    for (int64_t k = 0; k < n; ++k) row[k] = softmax[k] * (row[k] - sum);
  }
}

/// The elements of a step's sums: group g of a column step is (0, g), (1, g), .., of a row step (g, 0), (g, 1), ..
struct Groups {
  int64_t group_step, element_step;

  Groups(int64_t num_streams, int64_t step)
      : group_step(step % 2 == 0 ? 1 : num_streams), element_step(step % 2 == 0 ? num_streams : 1) {}
};

// Y = Z / (sum of Z over the group + eps)
template <typename T>
void normalize(const PartTrace<T>& trace, int64_t step, Part<T> block) {
  const int64_t n = trace.num_streams;
  const Groups groups(n, step);
  for (int64_t g = 0; g < n; ++g) {
    const Part<T> z = block + g * groups.group_step, y = trace.output + (step * n * n + g * groups.group_step);
    Lanes<T> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += z[i * groups.element_step];
    sum += trace.eps;
    trace.denominator[step * n + g] = sum;
    for (int64_t i = 0; i < n; ++i) {
      const Lanes<T> quotient = z[i * groups.element_step] / sum;
      z[i * groups.element_step] = quotient;
      y[i * groups.element_step] = quotient;
    }
  }
}

// dZ = (dY - sum over the group of dY * Y) / (S + eps)
template <typename T>
void normalize_grad(const PartTrace<T>& trace, int64_t step, Part<T> grad) {
  const int64_t n = trace.num_streams;
  const Groups groups(n, step);
  for (int64_t g = 0; g < n; ++g) {
    const Part<T> dy = grad + g * groups.group_step, y = trace.output + (step * n * n + g * groups.group_step);
    const Lanes<T> divisor = trace.denominator[step * n + g];
    Lanes<T> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += dy[i * groups.element_step] * y[i * groups.element_step];
    for (int64_t i = 0; i < n; ++i) {
      dy[i * groups.element_step] = (dy[i * groups.element_step] - sum) / divisor;
    }
  }
}

}  // namespace

template <typename T>
void sinkhorn_forward(const SinkhornTrace<T>& trace, T* block) {
  for (int64_t part = 0; part < LanesOf<T>::kParts; ++part) {
    const PartTrace<T> own(trace, part);
    softmax_rows(own, Part<T>(block, part));
    for (int64_t step = 0; step < trace.num_steps; ++step) normalize(own, step, Part<T>(block, part));
  }
}

template <typename T>
void sinkhorn_backward(const SinkhornTrace<T>& trace, T* grad) {
  for (int64_t part = 0; part < LanesOf<T>::kParts; ++part) {
    const PartTrace<T> own(trace, part);
    for (int64_t step = trace.num_steps - 1; step >= 0; --step) normalize_grad(own, step, Part<T>(grad, part));
    softmax_rows_grad(own, Part<T>(grad, part));
  }
}

template void sinkhorn_forward(const SinkhornTrace<float>&, float*);
template void sinkhorn_forward(const SinkhornTrace<double>&, double*);
template void sinkhorn_backward(const SinkhornTrace<float>&, float*);
template void sinkhorn_backward(const SinkhornTrace<double>&, double*);

}  // namespace asterism::ops::cpu::ASTERISM_ISA
