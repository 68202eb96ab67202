#include "asterism/ops/cpu/sinkhorn_kernel.h"

#include "asterism/ops/cpu/level_choice.h"

namespace asterism::ops::cpu {

// forward: block is logits in, mix out, and the trajectory is filled. backward: grad is the gradient of the mix in, of
// the logits out.
ASTERISM_EACH_LEVEL(template <typename T> void sinkhorn_forward(const SinkhornTrace<T>& trace, T* block);
                    template <typename T> void sinkhorn_backward(const SinkhornTrace<T>& trace, T* grad);)

template <typename T>
Sinkhorn<T>::Sinkhorn(int64_t num_streams, int64_t iterations, T eps) {
  const int64_t num_steps = 2 * iterations - 1, group = num_streams * kSinkhornLanes, block = num_streams * group;
  memory_.resize((num_steps + 1) * block + num_steps * group);
  T* const memory = memory_.data();
  trace_ = {.num_streams = num_streams,
            .num_steps = num_steps,
            .eps = eps,
            .softmax = memory,
            .output = memory + block,
            .denominator = memory + (num_steps + 1) * block};
}

template <typename T>
void Sinkhorn<T>::forward(T* block) {
  ASTERISM_AT_LEVEL(sinkhorn_forward<T>)(trace_, block);
}

template <typename T>
void Sinkhorn<T>::backward(T* grad) {
  ASTERISM_AT_LEVEL(sinkhorn_backward<T>)(trace_, grad);
}

template class Sinkhorn<float>;
template class Sinkhorn<double>;

}  // namespace asterism::ops::cpu
