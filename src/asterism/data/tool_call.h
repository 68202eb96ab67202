#pragma once

#include <optional>
#include <string>
#include <vector>

#include "asterism/data/chat_options.h"
#include "asterism/data/json_value.h"

namespace asterism::data {

/// A parameter as a DSML tag holds it. `value` is the text itself (is_text) or JSON.
struct CallParameter {
  std::string name;
  bool is_text;
  std::string value;
};

struct ToolCall {
  std::string name;
  std::vector<CallParameter> parameters;
};

/// An entry {"function": {"name", "arguments"}} of `tool_calls`. Arguments (encoding-spec 5.5):
///   an object, or text that is JSON of one   a parameter for every key
///   null, or no arguments                    no parameters
///   any other text                           one text parameter "arguments" with all of it. v4.1 reads JSON text that
///                                            holds the JSON text of an object as that object.
///   any other value                          one parameter "arguments" with its JSON
/// ChatError: bad_tool_call for another form, lone_surrogate and too_deep for JSON that cannot be held.
ToolCall read_tool_call(const JsonValue& call, ChatVariant variant, std::optional<size_t> message_index);

/// ChatError (unframeable) when a name, key or value would end the tag around it too early, so that no parser of model
/// output could read the call back.
void check_frameable(const ToolCall& call, std::optional<size_t> message_index);

}  // namespace asterism::data
