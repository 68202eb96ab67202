#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asterism/data/chat_options.h"

namespace asterism::data {

/// Tags of tool calls as a variant spells them. Opening ones go on with attributes or ">".
struct CallTags {
  explicit CallTags(ChatVariant variant);
  std::string block_open, block_close;
  std::string invoke_open, invoke_close;
  std::string parameter_open, parameter_close;
};

/// The name in the text between "<｜DSML｜invoke" and the next tag, by the rule of the official parser: white space,
/// name="NAME"> and one or two newlines. The name may hold anything, quotes and tags too.
std::optional<std::string_view> strict_invoke_name(std::string_view text);

/// The same when white space may stand anywhere around; `exact` says whether the strict rule holds.
struct InvokeName {
  std::string_view name;
  bool exact;
};
std::optional<InvokeName> lenient_invoke_name(std::string_view text);

struct DsmlParameter {
  std::string_view key;
  std::string_view value;
  std::optional<bool> is_string;  // nothing: the text does not say (never by the strict rule)
};

/// The parameter in the text between "<｜DSML｜parameter" and its closing tag, by the rule of the official parser: one
/// space, name="KEY" string="true|false"> and the value. The key ends at the first such attribute.
std::optional<DsmlParameter> strict_parameter(std::string_view text);

/// Any attributes of the form name="value" in any order, of which one is the name; `string` counts when it is true or
/// false in any case.
std::optional<DsmlParameter> lenient_parameter(std::string_view text);

/// Whether `text` opens a block of tool calls as other variants than this one do.
bool holds_other_dialect(std::string_view text, ChatVariant variant);

/// Whether `text` is a JSON value by the rules of the encoding (python_json.h).
bool is_json(std::string_view text);
/// The JSON string of a text that is UTF-8.
std::string json_string(std::string_view text);

/// Builds the JSON text of a call's arguments as the official parser does: {"key": value, ...}, string values escaped,
/// others as they stand.
class ArgumentsText {
 public:
  bool has(const std::string& key) const { return places_.contains(key); }
  /// `json` is written as it stands. A key that is there gets this value at its old place.
  void set(const std::string& key, std::string json);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  std::map<std::string, size_t> places_;
};

/// Whether all of `text` is white space (space, tab, line feed, carriage return).
bool is_blank(std::string_view text);

}  // namespace asterism::data
