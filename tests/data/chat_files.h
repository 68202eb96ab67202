#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "asterism/data/chat_row.h"
#include "asterism/data/python_json.h"

namespace asterism::data {

inline JsonValue json(std::string_view text) {
  JsonValue value;
  if (const auto fault = parse_json(text, value)) throw std::runtime_error(fault->reason + " in " + std::string(text));
  return value;
}

inline JsonValue json_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream content;
  content << in.rdbuf();
  return json(content.str());
}

/// The cases of tests/golden/encoding/<name>: those that were made for this project.
inline JsonValue::Array own_cases(const std::string& name) {
  const auto folder = std::filesystem::path(ASTERISM_SOURCE_DIR) / "tests/golden/encoding";
  return json_file(folder / name).get("cases").as_array();
}

/// Published cases are not part of the repository; a checkout beside them has these.
inline std::optional<JsonValue::Array> published_cases(const std::string& name) {
  const auto path = std::filesystem::path(ASTERISM_SOURCE_DIR) / "../shared/golden/encoding" / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return json_file(path).get("cases").as_array();
}

inline std::string id_of(const JsonValue& item) {
  return item.get("id").as_string();
}

/// derived_encode.json without the cases in which this project deliberately departs from the official module
/// (encode_recommended.json).
inline JsonValue::Array official_cases() {
  const std::set<std::string> replaced = {"arguments_object_not_string", "arguments_null",
                                          "null_tool_content_prints_None"};
  JsonValue::Array cases = own_cases("derived_encode.json");
  std::erase_if(cases, [&](const JsonValue& item) { return replaced.contains(id_of(item)); });
  return cases;
}

/// A case as a chat row: its options are keys of the row.
inline ChatRow row_of_case(const JsonValue& item, ChatVariant variant = ChatVariant::V4_0731) {
  JsonValue row = item.get("options");
  row.set("messages", item.get("messages"));
  row.set("context", item.get("context"));
  ChatDefaults defaults;
  defaults.chat.variant = variant;
  return read_chat_row(std::move(row), defaults);
}

/// A conversation of a list of messages.
inline Conversation messages(std::string_view text) {
  return {json(text), {}, {}, {}};
}

}  // namespace asterism::data
