#include "asterism/core/shortened.h"

#include "asterism/core/error.h"

namespace asterism {

std::string shortened(std::string_view found) {
  constexpr size_t kLength = 300;
  if (found.size() <= kLength) return std::string(found);
  size_t end = kLength;
  while (end > 0 && (found[end] & 0xC0) == 0x80) --end;  // not within a character of UTF-8
  return text(found.substr(0, end), "... (", found.size(), " bytes)");
}

}  // namespace asterism
