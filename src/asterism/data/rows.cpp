#include "asterism/data/rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "asterism/data/excerpt.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNotTrained = -100;
constexpr size_t kExcerptCharacters = 200;
// No real row nests deeper; copying a value recurses, so the depth must be bounded.

enum class Kind { Chat, Tokens, Text, ShareGpt, Alpaca };

struct KindKey {
  Kind kind;
  const char* key;
  std::string_view name;
};
constexpr KindKey kKinds[] = {
    {Kind::Chat, "messages", "chat"},        {Kind::Tokens, "input_ids", "token"},
    {Kind::Text, "text", "plain-text"},      {Kind::ShareGpt, "conversations", "ShareGPT"},
    {Kind::Alpaca, "instruction", "Alpaca"},
};

bool has(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

Json parse_row(const RawRow& row) {
  if (const auto offset = find_invalid_utf8(row.text)) {
    throw RowError("invalid_utf8", text("byte ", *offset, " of the row is not UTF-8; convert the file to UTF-8"), row);
  }
  if (nests_too_deep(row.text)) {
    throw RowError("too_deep", text("more than ", kMaxRowDepth, " levels of brackets"), row);
  }
  try {
    return Json::parse(row.text);
  } catch (const nlohmann::json::parse_error& error) {
    const char* hint = row.cut_off ? "; the file ends here: was it written completely?" : "";
    throw RowError("invalid_json", text("no valid JSON at byte ", error.byte, " of the row", hint), row);
  } catch (const nlohmann::json::exception& error) {
    throw RowError("invalid_json", readable_prefix(error.what(), kExcerptCharacters), row);
  }
}

const KindKey& kind_of(const Json& object, const RawRow& row) {
  const KindKey* found = nullptr;
  for (const KindKey& candidate : kKinds) {
    if (!has(object, candidate.key)) continue;
    if (found != nullptr) {
      throw RowError("ambiguous_kind",
                     text("the row has both ", found->key, " (a ", found->name, " row) and ", candidate.key, " (a ",
                          candidate.name, " row); remove one"),
                     row);
    }
    found = &candidate;
  }
  if (found != nullptr) return *found;
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + key;
  throw RowError("unknown_kind",
                 "a row needs messages, input_ids or text; its keys are: " + readable_prefix(keys, kExcerptCharacters),
                 row);
}

const std::string& string_option(const Json& object, const char* key, const RawRow& row) {
  const Json& value = object.at(key);
  if (!value.is_string()) throw RowError("invalid_option", std::string(key) + " must be text", row);
  return value.get_ref<const std::string&>();
}

bool bool_option(const Json& object, const char* key, bool standard, const RawRow& row) {
  if (!has(object, key)) return standard;
  if (!object.at(key).is_boolean()) throw RowError("invalid_option", std::string(key) + " must be true or false", row);
  return object.at(key).get<bool>();
}

ThinkingMode mode_of_row(const Json& object, Thinking choice, const RawRow& row) {
  // A row's own value is checked even where the options override it.
  std::optional<ThinkingMode> own;
  if (has(object, "thinking_mode")) own = thinking_mode(string_option(object, "thinking_mode", row));
  if (choice != Thinking::Auto) return choice == Thinking::Thinking ? ThinkingMode::Thinking : ThinkingMode::Chat;
  if (own) return *own;
  return has_reasoning(object.at("messages")) ? ThinkingMode::Thinking : ThinkingMode::Chat;
}

/// The second answer would follow an end token without any header, which the model never sees in use.
void reject_consecutive_assistants(const Json& messages, const RawRow& row) {
  bool after_assistant = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool assistant = messages[i].at("role") == "assistant";
    if (assistant && after_assistant) {
      throw RowError("consecutive_assistants",
                     text("message ", i, " is the second assistant message in a row; merge the two"), row);
    }
    after_assistant = assistant;
  }
}

std::vector<Sample> chat_samples(const Json& object, const RawRow& row, const RowOptions& options) {
  for (const char* later : {"tools", "context"}) {
    if (has(object, later) && is_truthy(object.at(later))) {
      throw RowError("unsupported_feature", std::string("the row has ") + later + ": this comes with later work", row);
    }
  }
  const Json& messages = object.at("messages");
  ChatOptions chat = options.chat;
  LossOptions loss = options.loss;
  std::vector<Sample> samples;
  try {
    chat.thinking_mode = mode_of_row(object, options.thinking, row);
    chat.drop_thinking = bool_option(object, "drop_thinking", chat.drop_thinking, row);
    chat.add_default_bos_token = bool_option(object, "add_bos", chat.add_default_bos_token, row);
    if (has(object, "reasoning_effort")) {
      chat.reasoning_effort = reasoning_effort(string_option(object, "reasoning_effort", row));
    }
    if (has(object, "history")) loss.history = history(string_option(object, "history", row));
    samples = encode_samples(messages, chat, loss, options.tokenize, row.origin);
  } catch (const ChatError& error) {
    throw RowError(error.category(), error.explanation(), row);
  }
  if (messages.empty()) throw RowError("empty_row", "the list of messages is empty", row);
  reject_consecutive_assistants(messages, row);
  return samples;
}

std::vector<int64_t> integers(const Json& object, const char* key, const RawRow& row) {
  const Json& list = object.at(key);
  if (!list.is_array()) throw RowError("invalid_ids", text(key, " must be a list, found ", list.type_name()), row);
  std::vector<int64_t> values;
  values.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    // Beyond int64 is beyond any vocabulary; so is what JSON parsing has turned into a float.
    if (!list[i].is_number_integer() || (list[i].is_number_unsigned() && list[i].get<uint64_t>() > INT64_MAX)) {
      throw RowError("invalid_ids", text(key, "[", i, "] is no whole number: ", readable_prefix(list[i].dump(), 40)),
                     row);
    }
    values.push_back(list[i].get<int64_t>());
  }
  return values;
}

void check_same_length(const char* key, size_t length, size_t expected, const RawRow& row) {
  if (length == expected) return;
  throw RowError("length_mismatch",
                 text(key, " has ", length, " entries, input_ids has ", expected, "; they must be aligned"), row);
}

std::vector<float> weights_of_labels(const std::vector<int64_t>& ids, const std::vector<int64_t>& labels,
                                     const RawRow& row) {
  check_same_length("labels", labels.size(), ids.size(), row);
  std::vector<float> weights(ids.size(), 0.0f);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (labels[t] == kNotTrained) continue;
    if (labels[t] != ids[t]) {
      const bool shifted = t + 1 < ids.size() && labels[t] == ids[t + 1];
      throw RowError("label_mismatch",
                     text("labels[", t, "] is ", labels[t], " but input_ids[", t, "] is ", ids[t],
                          "; a label is -100 (not trained) or the id at the same position",
                          shifted ? ": these labels look shifted by one, the trainer shifts by itself" : ""),
                     row);
    }
    weights[t] = 1.0f;
  }
  return weights;
}

Sample token_sample(const Json& object, const RawRow& row) {
  Sample sample;
  sample.origin = row.origin;
  sample.ids = integers(object, "input_ids", row);
  const auto negative = std::find_if(sample.ids.begin(), sample.ids.end(), [](int64_t id) { return id < 0; });
  if (negative != sample.ids.end()) {
    throw RowError("invalid_ids", text("input_ids[", negative - sample.ids.begin(), "] is negative: ", *negative), row);
  }
  if (has(object, "attention_mask")) {
    const std::vector<int64_t> mask = integers(object, "attention_mask", row);
    check_same_length("attention_mask", mask.size(), sample.ids.size(), row);
    if (std::any_of(mask.begin(), mask.end(), [](int64_t m) { return m != 1; })) {
      throw RowError("padded_row", "attention_mask hides some tokens; remove the padding from the row", row);
    }
  }
  sample.weights = has(object, "labels") ? weights_of_labels(sample.ids, integers(object, "labels", row), row)
                                         : std::vector<float>(sample.ids.size(), 1.0f);
  return sample;
}

Sample text_sample(const Json& object, const RawRow& row, const RowOptions& options) {
  const Json& value = object.at("text");
  if (!value.is_string()) throw RowError("invalid_content", "text must be a string", row);
  Sample sample;
  sample.origin = row.origin;
  std::vector<size_t> ends;
  options.tokenize(value.get_ref<const std::string&>(), sample.ids, ends);
  sample.weights.assign(sample.ids.size(), 1.0f);
  return sample;
}

void check_vocabulary(const Sample& sample, int64_t vocab_size) {
  if (vocab_size <= 0) return;
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    const int64_t id = sample.ids[t];
    if (id >= 0 && id < vocab_size) continue;
    input_error(sample.origin, ": token id ", id, " at position ", t, " does not fit the model's vocabulary of ",
                vocab_size, " tokens; do tokenizer and model belong together?");
  }
}

std::vector<Sample> samples_of_kind(const KindKey& kind, const Json& object, const RawRow& row,
                                    const RowOptions& options) {
  if (kind.kind == Kind::ShareGpt || kind.kind == Kind::Alpaca) {
    throw RowError("unsupported_kind",
                   text(kind.name, " rows (", kind.key, ") come with later work; convert them to messages"), row);
  }
  if (kind.kind == Kind::Tokens) return {token_sample(object, row)};
  if (!options.tokenize) input_error(row.origin, ": a ", kind.name, " row needs a tokenizer; set model.tokenizer");
  if (kind.kind == Kind::Text) return {text_sample(object, row, options)};
  return chat_samples(object, row, options);
}

std::string describe(const std::string& category, const std::string& explanation, const RawRow& row) {
  return text(row.origin, ": [", category, "] ", explanation,
              "; the row begins: ", readable_prefix(row.text, kExcerptCharacters));
}

}  // namespace

bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    in_string = c == '"';
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxRowDepth) return true;
  }
  return false;
}

RowError::RowError(std::string category, const std::string& explanation, const RawRow& row)
    : InputError(describe(category, explanation, row)), category_(std::move(category)), explanation_(explanation) {}

std::vector<Sample> samples_of_row(const RawRow& row, const RowOptions& options) {
  const Json object = parse_row(row);
  if (!object.is_object()) {
    throw RowError("not_an_object", text("a row must be a JSON object {...}, found ", object.type_name()), row);
  }
  std::vector<Sample> samples = samples_of_kind(kind_of(object, row), object, row, options);
  for (size_t part = 0; part < samples.size(); ++part) {
    const Sample& sample = samples[part];
    const bool is_wanted = options.loss.only_part.value_or(part) == part;
    if (is_wanted && sample.ids.empty()) throw RowError("empty_row", "the row has no tokens", row);
    check_vocabulary(sample, options.vocab_size);
  }
  return samples;
}

}  // namespace asterism::data
