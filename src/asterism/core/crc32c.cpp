#include "asterism/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace asterism {

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

using Table = std::array<uint32_t, 256>;

constexpr Table make_table() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

uint32_t update_portable(uint32_t state, const unsigned char* data, size_t bytes) {
  static constexpr Table kTable = make_table();
  for (size_t i = 0; i < bytes; ++i) state = (state >> 8) ^ kTable[(state ^ data[i]) & 0xFF];
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t update_sse42(uint32_t state, const unsigned char* data, size_t bytes) {
  uint64_t wide = state;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes, ++data) narrow = _mm_crc32_u8(narrow, *data);
  return narrow;
}
#endif

uint32_t update(uint32_t state, const unsigned char* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  if (fast) return update_sse42(state, data, bytes);
#endif
  return update_portable(state, data, bytes);
}

/// A linear map of 32-bit states: what some number of zero bytes does to a checksum.
using Matrix = std::array<uint32_t, 32>;

uint32_t times(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t bit = 0; vector != 0; ++bit, vector >>= 1) sum ^= (vector & 1) != 0 ? matrix[bit] : 0;
  return sum;
}

Matrix square(const Matrix& matrix) {
  Matrix result{};
  for (size_t bit = 0; bit < result.size(); ++bit) result[bit] = times(matrix, matrix[bit]);
  return result;
}

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t before) {
  return ~update(~before, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  Matrix zeros{};  // one zero bit
  zeros[0] = kPolynomial;
  for (size_t bit = 1; bit < zeros.size(); ++bit) zeros[bit] = uint32_t{1} << (bit - 1);
  for (int i = 0; i < 3; ++i) zeros = square(zeros);  // one zero byte
  for (; second_bytes != 0; second_bytes >>= 1, zeros = square(zeros)) {
    if ((second_bytes & 1) != 0) first = times(zeros, first);
  }
  return first ^ second;
}

}  // namespace asterism
