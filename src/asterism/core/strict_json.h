#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace asterism {

/// JSON of a file that others wrote. InputError with `origin` for what is no JSON, and for what would mean one thing
/// here and another elsewhere or cost more than it is worth: a key twice in one object (parsers silently keep one of
/// the two), numbers that no double holds, values nested more than 64 deep. Time and memory are linear in the text.
nlohmann::json parse_strict_json(std::string_view content, const std::string& origin);

/// The same, keeping the order of the keys. At most 10,000 keys in one object: adding one takes time linear in those
/// that are there.
nlohmann::ordered_json parse_ordered_json(std::string_view content, const std::string& origin);

}  // namespace asterism
