#include "asterism/ops/cpu/swiglu_kernel.h"

#include "asterism/ops/cpu/level_choice.h"

namespace asterism::ops::cpu {

ASTERISM_EACH_LEVEL(template <typename T> void swiglu_rows(const SwigluArgs<T>& args, int64_t begin, int64_t end);
                    template <typename T>
                    void swiglu_grad_rows(const SwigluGradArgs<T>& args, int64_t begin, int64_t end);)

template <typename T>
void swiglu_rows(const SwigluArgs<T>& args, int64_t begin, int64_t end) {
  ASTERISM_AT_LEVEL(swiglu_rows<T>)(args, begin, end);
}

template <typename T>
void swiglu_grad_rows(const SwigluGradArgs<T>& args, int64_t begin, int64_t end) {
  ASTERISM_AT_LEVEL(swiglu_grad_rows<T>)(args, begin, end);
}

template void swiglu_rows(const SwigluArgs<float>&, int64_t, int64_t);
template void swiglu_rows(const SwigluArgs<double>&, int64_t, int64_t);
template void swiglu_grad_rows(const SwigluGradArgs<float>&, int64_t, int64_t);
template void swiglu_grad_rows(const SwigluGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu
