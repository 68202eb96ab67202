#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace asterism::checkpoint {

/// The JSON value of `content`. InputError with `origin` and the byte offset when it is not JSON, or when an object
/// names a key twice (parsers differ in which of the two they keep).
nlohmann::json parse_strict_json(std::string_view content, const std::string& origin);

}  // namespace asterism::checkpoint
