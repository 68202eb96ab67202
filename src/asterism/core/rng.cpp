#include "asterism/core/rng.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

namespace asterism {

uint64_t mix_bits(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, std::initializer_list<uint64_t> ids)
    : key_(mix_bits(seed)) {
  // The length goes in first, so that no two names of different shape collide by concatenation.
  key_ = mix_bits(key_ ^ purpose.size());
  for (const char c : purpose) key_ = mix_bits(key_ ^ static_cast<unsigned char>(c));
  for (const uint64_t id : ids) key_ = mix_bits(key_ + mix_bits(id));
}

std::array<uint32_t, 4> RandomStream::block(uint64_t low, uint64_t high) const {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                               static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ULL * c[0], p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

uint64_t RandomStream::bits(uint64_t index) const {
  const auto b = block(index);
  return (static_cast<uint64_t>(b[1]) << 32) | b[0];
}

double RandomStream::uniform(uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1.0p-53;
}

uint64_t RandomStream::below(uint64_t bound, uint64_t index) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

double RandomStream::normal(uint64_t index) const {
  const auto b = block(index);
  const uint64_t first = (static_cast<uint64_t>(b[1]) << 32) | b[0],
                 second = (static_cast<uint64_t>(b[3]) << 32) | b[2];
  const double u = (static_cast<double>(first >> 11) + 1.0) * 0x1.0p-53;  // in (0, 1]: the logarithm is finite
  const double v = static_cast<double>(second >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

template <typename T>
void fill_normal(const RandomStream& stream, T* out, int64_t count, double standard_deviation) {
  at::parallel_for(0, count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(stream.normal(i) * standard_deviation);
  });
}

template <typename T>
void fill_uniform(const RandomStream& stream, T* out, int64_t count, double low, double high) {
  at::parallel_for(0, count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(low + (high - low) * stream.uniform(i));
  });
}

template void fill_normal(const RandomStream&, float*, int64_t, double);
template void fill_normal(const RandomStream&, double*, int64_t, double);
template void fill_uniform(const RandomStream&, float*, int64_t, double, double);
template void fill_uniform(const RandomStream&, double*, int64_t, double, double);

}  // namespace asterism
