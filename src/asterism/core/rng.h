#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace asterism {

/// A stream of random numbers that is a pure function of its name and of the index of the number: no state, so thread
/// count, rank layout and resuming cannot shift it. The name is (run seed, purpose, ids such as step, layer, sample).
/// Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view purpose, std::initializer_list<uint64_t> ids = {});

  /// Four independent 32-bit numbers for a 128-bit counter (high, low).
  std::array<uint32_t, 4> block(uint64_t low, uint64_t high = 0) const;
  /// 64 random bits number `index`.
  uint64_t bits(uint64_t index) const;
  /// Uniform in [0, 1), 53 bits.
  double uniform(uint64_t index) const;
  /// Uniform integer in [0, bound), without modulo bias worth measuring (128-bit multiply).
  uint64_t below(uint64_t bound, uint64_t index) const;
  /// Standard normal number `index` (Box-Muller on one block).
  double normal(uint64_t index) const;

  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

/// A mixing step with full avalanche (the finaliser of SplitMix64), for building names out of ids.
uint64_t mix_bits(uint64_t value);

/// Element-wise fills; element i is a function of (stream, i) alone. Parallel inside. T is float or double.
template <typename T>
void fill_normal(const RandomStream& stream, T* out, int64_t count, double standard_deviation);
template <typename T>
void fill_uniform(const RandomStream& stream, T* out, int64_t count, double low, double high);

}  // namespace asterism
