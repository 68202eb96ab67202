#pragma once

#include <string_view>

namespace asterism::data {

/// The characters that Unicode 15.0 to 16.0 added to the general category group `category` (L, M, N, P or S), as the
/// inside of a PCRE2 character class; empty for any other group (no additions).
/// Only unassigned code points changed between 14.0 and 16.0, so \p{L} of any library since 14.0 together with this
/// list is the group of Unicode 16.0: token ids then do not depend on which PCRE2 a machine has.
std::string_view added_after_unicode_14(char category);

}  // namespace asterism::data
