#include "asterism/data/rows.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "asterism/data/chat_conversion.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

constexpr int64_t kNotTrained = -100;
constexpr size_t kExcerptCharacters = 200;

bool has(const JsonValue& object, const char* key) {
  return !object.get(key).is_null();
}

std::vector<int64_t> integers(const JsonValue& object, const char* key, const RawRow& row) {
  const JsonValue& list = object.get(key);
  if (!list.is_array()) throw RowError("invalid_ids", text(key, " must be a list, found ", list.type_name()), row);
  std::vector<int64_t> values;
  values.reserve(list.size());
  for (const JsonValue& value : list.as_array()) {
    if (!value.is_int64()) {  // beyond int64 is beyond any vocabulary
      throw RowError("invalid_ids",
                     text(key, "[", values.size(), "] is no token id: ", readable_prefix(to_json(value), 40)), row);
    }
    values.push_back(value.as_int64());
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

Sample token_sample(const JsonValue& object, const RawRow& row) {
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

Sample text_sample(const JsonValue& object, const RawRow& row, const RowOptions& options) {
  const JsonValue& value = object.get("text");
  if (!value.is_string()) throw RowError("invalid_content", "text must be a string", row);
  Sample sample;
  sample.origin = row.origin;
  std::vector<size_t> ends;
  options.tokenize(value.as_string(), {}, sample.ids, ends);
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

std::vector<Sample> samples_of_chat(const ChatRow& chat, const RawRow& row, const RowOptions& options) {
  std::vector<Sample> samples;
  for (ChatSample& sample : chat_samples(chat.conversation, chat.chat, chat.loss, options.tokenize, row.origin)) {
    samples.push_back(std::move(sample.sample));
  }
  if (chat.conversation.messages.size() == 0) throw RowError("empty_row", "the list of messages is empty", row);
  check_trainable(chat.conversation);
  return samples;
}

std::vector<Sample> samples_of_kind(const ReadRow& read, const RawRow& row, const RowOptions& options) {
  if (read.kind == RowKind::Tokens) return {token_sample(read.object, row)};
  if (!options.tokenize) {
    input_error(row.origin, ": a ", kind_name(read.kind), " row needs a tokenizer; set model.tokenizer");
  }
  if (read.kind == RowKind::Text) return {text_sample(read.object, row, options)};
  return samples_of_chat(*read.chat, row, options);
}

std::string describe(const std::string& category, const std::string& explanation, const RawRow& row) {
  return text(row.origin, ": [", category, "] ", explanation,
              "; the row begins: ", readable_prefix(row.text, kExcerptCharacters));
}

}  // namespace

JsonValue parse_row(const RawRow& row) {
  const auto fail = [](const char* category, const std::string& explanation) {
    throw ChatError(category, std::nullopt, explanation);
  };
  if (row.too_long)
    fail("too_long", text("the row has more than ", kMaxRowBytes >> 20, " MiB; is a line end missing?"));
  const size_t nul = row.text.find('\0');
  if (nul != std::string_view::npos) {
    fail("nul_byte", text("byte ", nul, " of the row is zero; was the file written completely?"));
  }
  if (const auto offset = find_invalid_utf8(row.text)) {
    fail("invalid_utf8", text("byte ", *offset, " of the row is not UTF-8; convert the file to UTF-8"));
  }
  JsonValue object;
  if (const auto fault = parse_json(row.text, object, EqualKeys::AreFault)) {
    const std::string where = text(" at byte ", fault->offset, " of the row");
    if (fault->kind == JsonFault::Kind::TooDeep)
      fail("too_deep", text("more than ", kMaxJsonDepth, " levels of brackets"));
    if (fault->kind == JsonFault::Kind::EqualKeys) fail("duplicate_key", fault->reason + where);
    if (fault->kind == JsonFault::Kind::LoneSurrogate) fail("lone_surrogate", fault->reason + where);
    const char* hint = row.cut_off ? "; the file ends here: was it written completely?" : "";
    fail("invalid_json", text("no valid JSON", where, ": ", fault->reason, hint));
  }
  if (!object.is_object()) {
    fail("not_an_object", text("a row must be a JSON object {...}, found ", object.type_name()));
  }
  return object;
}

RowError::RowError(std::string category, const std::string& explanation, const RawRow& row)
    : InputError(describe(category, explanation, row)), category_(std::move(category)), explanation_(explanation) {}

ReadRow read_row(const RawRow& row, const RowOptions& options) {
  try {
    ReadRow read{RowKind::Chat, parse_row(row), std::nullopt};
    read.kind = kind_of_row(read.object);
    if (is_conversation(read.kind)) {
      read.chat = read_chat_row(to_chat_row(read.kind, std::exchange(read.object, JsonValue())), options);
    }
    return read;
  } catch (const ChatError& error) {
    throw RowError(error.category(), error.explanation(), row);
  }
}

std::vector<Sample> samples_of(const ReadRow& read, const RawRow& row, const RowOptions& options) {
  std::vector<Sample> samples;
  try {
    samples = samples_of_kind(read, row, options);
  } catch (const ChatError& error) {
    throw RowError(error.category(), error.explanation(), row);
  }
  for (size_t part = 0; part < samples.size(); ++part) {
    const Sample& sample = samples[part];
    const bool is_wanted = options.loss.only_part.value_or(part) == part;
    if (is_wanted && sample.ids.empty()) throw RowError("empty_row", "the row has no tokens", row);
    check_vocabulary(sample, options.vocab_size);
  }
  return samples;
}

std::vector<Sample> samples_of_row(const RawRow& row, const RowOptions& options) {
  return samples_of(read_row(row, options), row, options);
}

}  // namespace asterism::data
