#include "asterism/ops/cpu/cross_entropy_kernel.h"

#include "asterism/ops/cpu/level_choice.h"

namespace asterism::ops::cpu {

ASTERISM_EACH_LEVEL(template <typename T>
                    void cross_entropy_rows(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end);)

template <typename T>
void cross_entropy_rows(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end) {
  ASTERISM_AT_LEVEL(cross_entropy_rows<T>)(args, begin, end);
}

template void cross_entropy_rows(const CrossEntropyArgs<float>&, int64_t, int64_t);
template void cross_entropy_rows(const CrossEntropyArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu
