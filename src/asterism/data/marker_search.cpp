#include "asterism/data/marker_search.h"

#include <algorithm>
#include <string>

namespace asterism::data {

MarkerMatch find_marker(std::string_view text, std::span<const std::string_view> markers) {
  std::string first_bytes;
  for (const std::string_view marker : markers) {
    if (first_bytes.find(marker.front()) == std::string::npos) first_bytes += marker.front();
  }
  size_t at = text.find_first_of(first_bytes);
  for (; at != std::string_view::npos; at = text.find_first_of(first_bytes, at + 1)) {
    const std::string_view rest = text.substr(at);
    for (size_t i = 0; i < markers.size(); ++i) {
      const size_t shared = std::min(rest.size(), markers[i].size());
      if (rest.substr(0, shared) != markers[i].substr(0, shared)) continue;
      if (shared == markers[i].size()) return {at, i};
      return {at, std::nullopt};
    }
  }
  return {text.size(), std::nullopt};
}

}  // namespace asterism::data
