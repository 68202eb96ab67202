#include "asterism/checkpoint/strict_json.h"

#include <unordered_set>
#include <vector>

#include "asterism/core/error.h"

namespace asterism::checkpoint {

nlohmann::json parse_strict_json(std::string_view content, const std::string& origin) {
  using Json = nlohmann::json;
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto refuse_duplicates = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      input_error(origin, ": the key '", parsed.get<std::string>(), "' appears twice; the file is corrupt");
    }
    return true;
  };
  try {
    return Json::parse(content.begin(), content.end(), refuse_duplicates);
  } catch (const Json::parse_error& error) {
    input_error(origin, ": not valid JSON at byte ", error.byte, "; the file is incomplete or corrupt");
  }
}

}  // namespace asterism::checkpoint
