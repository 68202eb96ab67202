#pragma once

#include <cstddef>

namespace asterism::data {

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;

  size_t size() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

}  // namespace asterism::data
