#include "asterism/data/tool_call.h"

#include <string_view>
#include <utility>

#include "asterism/data/chat_markup.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr const char* kWholeArguments = "arguments";

/// Whether `text` is JSON; `value` holds it then.
bool read_arguments(std::string_view text, JsonValue& value, std::optional<size_t> message_index) {
  const auto fault = parse_json(text, value);
  if (!fault) return true;
  const std::string where = " at byte " + std::to_string(fault->offset) + " of the arguments";
  if (fault->kind == JsonFault::Kind::LoneSurrogate) {
    throw ChatError("lone_surrogate", message_index, "half a surrogate pair stands" + where + "; UTF-8 cannot hold it");
  }
  if (fault->kind == JsonFault::Kind::TooDeep) {
    throw ChatError("too_deep", message_index,
                    "more than " + std::to_string(kMaxJsonDepth) + " levels of brackets" + where);
  }
  return false;
}

std::vector<CallParameter> parameters_of(const JsonValue& arguments) {
  std::vector<CallParameter> parameters;
  for (const auto& [key, value] : arguments.as_object()) {
    parameters.push_back({key, value.is_string(), value.is_string() ? value.as_string() : to_json(value)});
  }
  return parameters;
}

std::vector<CallParameter> read_parameters(const JsonValue& arguments, ChatVariant variant,
                                           std::optional<size_t> message_index) {
  if (arguments.is_null()) return {};
  if (arguments.is_object()) return parameters_of(arguments);
  if (!arguments.is_string()) return {{kWholeArguments, false, to_json(arguments)}};
  JsonValue value;
  bool is_json = read_arguments(arguments.as_string(), value, message_index);
  if (is_json && value.is_string() && variant == ChatVariant::V4_1) {
    const std::string inner = value.as_string();
    is_json = read_arguments(inner, value, message_index);
  }
  if (is_json && value.is_object()) return parameters_of(value);
  return {{kWholeArguments, true, arguments.as_string()}};
}

}  // namespace

ToolCall read_tool_call(const JsonValue& call, ChatVariant variant, std::optional<size_t> message_index) {
  const JsonValue& function = call.get("function");
  if (!function.is_object()) {
    throw ChatError("bad_tool_call", message_index,
                    "a tool call must be {\"function\": {\"name\": ..., \"arguments\": ...}}");
  }
  const JsonValue& name = function.get("name");
  if (!name.is_string()) throw ChatError("bad_tool_call", message_index, "the function of a tool call needs a name");
  return {name.as_string(), read_parameters(function.get("arguments"), variant, message_index)};
}

void check_frameable(const ToolCall& call, std::optional<size_t> message_index) {
  const auto check = [&](const char* what, std::string_view text, std::string_view framing) {
    for (const std::string_view forbidden : {kDsml, framing}) {
      if (forbidden.empty() || text.find(forbidden) == std::string_view::npos) continue;
      throw ChatError("unframeable", message_index,
                      std::string("a ") + what + " of a tool call contains " + std::string(forbidden) +
                          ", so the call could not be read back");
    }
  };
  check("name", call.name, "\">\n");
  for (const CallParameter& parameter : call.parameters) {
    check("key", parameter.name, "\" string=\"");
    check("value", parameter.value, "");
  }
}

}  // namespace asterism::data
