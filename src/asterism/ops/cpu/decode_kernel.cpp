#include "asterism/ops/cpu/decode_kernel.h"

#include "asterism/ops/cpu/level_choice.h"

namespace asterism::ops::cpu {

ASTERISM_EACH_LEVEL(template <typename T, typename S> void decode_fp8_row(const uint8_t* codes, const S* block_scales,
                                                                          int64_t begin, int64_t end, T* out);
                    template <typename T> void decode_fp4_row(const uint8_t* codes, const uint8_t* scales,
                                                              int64_t begin, int64_t end, T* out);)

template <typename T, typename S>
void decode_fp8_row(const uint8_t* codes, const S* block_scales, int64_t begin, int64_t end, T* out) {
  ASTERISM_AT_LEVEL(decode_fp8_row<T, S>)(codes, block_scales, begin, end, out);
}

template <typename T>
void decode_fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t begin, int64_t end, T* out) {
  ASTERISM_AT_LEVEL(decode_fp4_row<T>)(codes, scales, begin, end, out);
}

template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*);
template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, double*);
template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, uint16_t*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, float*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, double*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, uint16_t*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, double*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, uint16_t*);

}  // namespace asterism::ops::cpu
