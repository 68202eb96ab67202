#pragma once

#include <string>
#include <string_view>

namespace asterism {

/// What was found in a file, for a message: all of it, or its beginning and its size when it is long.
std::string shortened(std::string_view found);

}  // namespace asterism
