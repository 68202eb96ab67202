#include "asterism/cli/commands.h"
#include "asterism/cli/row_answers.h"
#include "asterism/cli/session.h"
#include "asterism/data/chat_decoder.h"
#include "asterism/data/tokenizer.h"

namespace asterism::cli {

namespace {

using data::ChatError;
using data::JsonValue;

const std::string& required_text(const JsonValue& row, const char* key, const char* category) {
  const JsonValue& value = row.get(key);
  if (!value.is_string()) throw ChatError(category, std::nullopt, text("a row needs ", key, ", given as text"));
  return value.as_string();
}

// Whether the request that the completion answers offered tools: assumed when the row says nothing about them.
bool declares_tools(const JsonValue& row) {
  const JsonValue& declared = row.get("tools_declared");
  if (declared.is_boolean()) return declared.as_boolean();
  if (!declared.is_null()) throw ChatError("invalid_option", std::nullopt, "tools_declared must be true or false");
  const JsonValue* tools = row.find("tools");
  return tools == nullptr || data::is_truthy(*tools);
}

// `auto` needs a folder to go by; without one it is the standard, as for a checkpoint that says nothing.
data::ChatVariant variant_of(const ChatDecodeArgs& args) {
  if (args.tokenizer.empty()) {
    return args.variant == "auto" ? data::ChatOptions{}.variant : data::chat_variant(args.variant);
  }
  const data::Tokenizer tokenizer = data::Tokenizer::load(args.tokenizer);
  return variant_named(args.variant, args.tokenizer, &tokenizer);
}

}  // namespace

int run_chat_decode(const ChatDecodeArgs& args) {
  data::DecodeOptions options;
  options.variant = variant_of(args);
  options.mode = args.recover ? data::DecodeMode::Recover : data::DecodeMode::Strict;
  return answer_rows(args.file, [&](const JsonValue& row) {
    const std::string& completion = required_text(row, "text", "invalid_content");
    options.thinking_mode = data::thinking_mode(required_text(row, "thinking_mode", "invalid_thinking_mode"));
    options.tools_declared = declares_tools(row);
    return data::decoded_json(data::decode_chat(completion, options));
  });
}

}  // namespace asterism::cli
