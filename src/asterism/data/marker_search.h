#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace asterism::data {

/// Where the first of several markers stands in a text of which more may follow.
struct MarkerMatch {
  size_t begin;                  // no marker begins before it, whatever follows the text
  std::optional<size_t> marker;  // which one stands at `begin`; nothing: the rest may be the beginning of one
};

/// Linear in the text. A marker may hold another one only at its end: then a marker that begins first is complete no
/// later than those behind it, and a text gives the same matches however it is cut into pieces.
MarkerMatch find_marker(std::string_view text, std::span<const std::string_view> markers);

}  // namespace asterism::data
