#include "asterism/cli/chat_rows.h"

#include <algorithm>

#include "asterism/data/excerpt.h"
#include "asterism/data/rows.h"
#include "asterism/data/utf8.h"

namespace asterism::cli {

namespace {

using data::ChatError;
using data::History;
using Json = nlohmann::ordered_json;

// No real row nests deeper; copying and destroying a value recurses, so the depth must be bounded.
constexpr size_t kExcerptCharacters = 200;

[[noreturn]] void row_error(const std::string& category, const std::string& explanation) {
  throw ChatError(category, std::nullopt, explanation);
}

bool has(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && !found->is_null();
}

const std::string& text_of(const Json& row, const char* key) {
  if (!row.at(key).is_string()) row_error("invalid_option", text(key, " must be text"));
  return row.at(key).get_ref<const std::string&>();
}

bool truth_of(const Json& row, const char* key, bool standard) {
  if (!has(row, key)) return standard;
  if (!row.at(key).is_boolean()) row_error("invalid_option", text(key, " must be true or false"));
  return row.at(key).get<bool>();
}

ChatDefaults options_of(const Json& row, const ChatDefaults& defaults) {
  ChatDefaults options = defaults;
  const Json& messages = row.at("messages");
  options.chat.thinking_mode = has(row, "thinking_mode")       ? data::thinking_mode(text_of(row, "thinking_mode"))
                               : data::has_reasoning(messages) ? data::ThinkingMode::Thinking
                                                               : data::ThinkingMode::Chat;
  options.chat.drop_thinking = truth_of(row, "drop_thinking", options.chat.drop_thinking);
  options.chat.add_default_bos_token = truth_of(row, "add_bos", options.chat.add_default_bos_token);
  if (has(row, "reasoning_effort")) {
    options.chat.reasoning_effort = data::reasoning_effort(text_of(row, "reasoning_effort"));
  }
  if (has(row, "history")) options.loss.history = data::history(text_of(row, "history"));
  return options;
}

Json encode_one(const Json& messages, const ChatDefaults& options, const data::TokenizeFunction& tokenize) {
  const data::EncodedChat chat = data::encode_chat(messages, options.chat);
  const std::vector<data::TargetBody> bodies = data::target_bodies(chat, messages, options.loss);
  std::vector<int64_t> ids;
  std::vector<size_t> ends;
  tokenize(chat.text, ids, ends);
  return {{"text", chat.text}, {"ids", ids}, {"weights", data::token_weights(bodies, ends)}};
}

}  // namespace

Json encode_chat_row(const Json& row, const ChatDefaults& defaults, const data::TokenizeFunction& tokenize) {
  if (!has(row, "messages")) row_error("unknown_kind", "a chat row needs messages");
  for (const char* later : {"tools", "context"}) {
    if (has(row, later) && data::is_truthy(row.at(later))) {
      row_error("unsupported_feature", text("the row has ", later, ": this comes with later work"));
    }
  }
  ChatDefaults options = options_of(row, defaults);
  const Json& messages = row.at("messages");
  if (options.loss.history != History::Split) return encode_one(messages, options, tokenize);
  // Each answered turn, with what leads to it, is a sample that trains the last turn only.
  data::encode_chat(messages, options.chat);  // malformed messages are reported before they are cut
  options.loss.history = History::LastTurn;
  Json samples = Json::array();
  for (const size_t end : data::answered_turn_ends(messages)) {
    const auto first = messages.begin();
    const Json part = std::vector<Json>(first, first + static_cast<int64_t>(end));
    samples.push_back(encode_one(part, options, tokenize));
  }
  return {{"samples", std::move(samples)}};
}

Json error_row(const ChatError& error) {
  Json object = {{"category", error.category()}, {"message", error.explanation()}, {"message_index", nullptr}};
  if (error.message_index()) object["message_index"] = *error.message_index();
  return {{"error", std::move(object)}};
}

Json parse_row(const std::string& line) {
  if (const auto offset = data::find_invalid_utf8(line)) {
    row_error("invalid_utf8", text("byte ", *offset, " of the row is not UTF-8"));
  }
  if (data::nests_too_deep(line)) row_error("too_deep", text("more than ", data::kMaxRowDepth, " levels of brackets"));
  try {
    Json row = Json::parse(line);
    if (!row.is_object()) row_error("not_an_object", text("a row must be a JSON object, found ", row.type_name()));
    return row;
  } catch (const nlohmann::json::parse_error& error) {
    row_error("invalid_json", text("no valid JSON at byte ", error.byte, " of the row"));
  } catch (const nlohmann::json::exception& error) {
    row_error("invalid_json", data::readable_prefix(error.what(), kExcerptCharacters));
  }
}

}  // namespace asterism::cli
