#include "asterism/ops/cpu/compressor_kernel.h"

#include "asterism/ops/cpu/level_choice.h"

namespace asterism::ops::cpu {

ASTERISM_EACH_LEVEL(template <typename T> void pool_windows(const PoolArgs<T>& a, int64_t begin, int64_t end);
                    template <typename T> void pool_windows_grad(const PoolGradArgs<T>& a, int64_t begin, int64_t end);)

template <typename T>
void pool_windows(const PoolArgs<T>& a, int64_t begin, int64_t end) {
  ASTERISM_AT_LEVEL(pool_windows<T>)(a, begin, end);
}

template <typename T>
void pool_windows_grad(const PoolGradArgs<T>& a, int64_t begin, int64_t end) {
  ASTERISM_AT_LEVEL(pool_windows_grad<T>)(a, begin, end);
}

template void pool_windows(const PoolArgs<float>&, int64_t, int64_t);
template void pool_windows(const PoolArgs<double>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<float>&, int64_t, int64_t);
template void pool_windows_grad(const PoolGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu
