#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace asterism::data {

/// The first `max_characters` characters of `text` on one line for a message: control characters and bytes that are not
/// UTF-8 are shown as '?', a cut is shown as "...".
std::string readable_prefix(std::string_view text, size_t max_characters);

}  // namespace asterism::data
