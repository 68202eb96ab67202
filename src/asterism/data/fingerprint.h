#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace asterism::data {

/// A running 64-bit hash that notices accidents, not attacks: equal input gives equal values on every machine, and any
/// change gives another value with a probability of all but 2^-64.
class Fingerprint {
 public:
  void add(uint64_t value);
  /// The bytes and their number, so that "ab", "c" and "a", "bc" differ.
  void add(std::string_view bytes);

  uint64_t value() const { return state_; }
  /// 16 hexadecimal digits.
  std::string text() const;

 private:
  uint64_t state_ = 0;
};

}  // namespace asterism::data
