#include "asterism/data/fingerprint.h"

#include <cstdio>
#include <cstring>

#include "asterism/core/rng.h"

namespace asterism::data {

void Fingerprint::add(uint64_t value) {
  state_ = mix_bits(state_ ^ value);
}

void Fingerprint::add(std::string_view bytes) {
  add(static_cast<uint64_t>(bytes.size()));
  for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    add(word);
  }
  if (bytes.empty()) return;
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  add(word);
}

std::string Fingerprint::text() const {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(state_));
  return digits;
}

}  // namespace asterism::data
