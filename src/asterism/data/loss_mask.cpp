#include "asterism/data/loss_mask.h"

#include <algorithm>
#include <cmath>

#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr size_t kExcerptCharacters = 40;

bool asks_for_loss(const JsonValue& message) {
  return is_truthy(message.get("loss")) || is_truthy(message.get("loss_weight"));
}

float loss_weight(const JsonValue& message, size_t index) {
  float weight = 1.0f;
  if (const JsonValue& value = message.get("loss_weight"); !value.is_null()) {
    if (!value.is_number()) throw ChatError("invalid_loss", index, "loss_weight must be a number");
    weight = static_cast<float>(value.as_number());
    if (!(weight >= 0.0f) || !std::isfinite(weight)) {
      throw ChatError("invalid_loss", index, "loss_weight must be finite and at least 0, found " + to_json(value));
    }
  }
  if (const JsonValue& value = message.get("loss"); !value.is_null()) {
    if (!value.is_boolean()) throw ChatError("invalid_loss", index, "loss must be true or false");
    if (!value.as_boolean()) return 0.0f;
  }
  return weight;
}

/// Weights are read for every message, so that a bad one is found wherever it stands.
std::vector<float> loss_weights(const JsonValue::Array& messages) {
  static const JsonValue kAssistant("assistant");
  std::vector<float> weights(messages.size(), 0.0f);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].get("role") == kAssistant) {
      weights[i] = loss_weight(messages[i], i);
    } else if (asks_for_loss(messages[i])) {
      throw ChatError("invalid_loss", i, "only assistant messages can be trained; remove loss and loss_weight here");
    }
  }
  return weights;
}

/// Adjacent contents are joined: a special token across their border is one as well.
std::vector<ByteRange> content_ranges(const EncodedChat& chat) {
  std::vector<ByteRange> ranges;
  for (const ContentRange& content : chat.contents) {
    if (!ranges.empty() && ranges.back().end == content.range.begin) {
      ranges.back().end = content.range.end;
    } else {
      ranges.push_back(content.range);
    }
  }
  return ranges;
}

/// The first token of a text that differs when its contents are taken as text begins inside one of them or reaches in.
[[noreturn]] void special_error(const EncodedChat& chat, size_t offset) {
  const auto holder = std::find_if(chat.contents.begin(), chat.contents.end(),
                                   [&](const ContentRange& content) { return content.range.end > offset; });
  const auto index = holder == chat.contents.end() ? std::nullopt : holder->message_index;
  throw ChatError("special_in_content", index,
                  "a special token is spelt out in the text: \"" +
                      readable_prefix(std::string_view(chat.text).substr(offset), kExcerptCharacters) +
                      "\"; remove it, or choose special_in_content: allow or as_text");
}

void tokenize_chat(const EncodedChat& chat, SpecialInContent special, const TokenizeFunction& tokenize,
                   std::vector<int64_t>& ids, std::vector<size_t>& ends) {
  const std::vector<ByteRange> as_text =
      special == SpecialInContent::Allow ? std::vector<ByteRange>{} : content_ranges(chat);
  tokenize(chat.text, as_text, ids, ends);
  if (special != SpecialInContent::Reject) return;
  std::vector<int64_t> special_ids;
  std::vector<size_t> special_ends;
  tokenize(chat.text, {}, special_ids, special_ends);
  // Only an added token inside a content can make a difference.
  const auto [id, special_id] = std::mismatch(ids.begin(), ids.end(), special_ids.begin(), special_ids.end());
  if (id == ids.end() && special_id == special_ids.end()) return;
  const auto first = static_cast<size_t>(special_id - special_ids.begin());
  special_error(chat, first == 0 ? 0 : special_ends[first - 1]);
}

ChatSample encode_sample(const Conversation& conversation, size_t num_messages, const ChatOptions& chat_options,
                         const LossOptions& loss_options, const TokenizeFunction& tokenize, const std::string& origin) {
  EncodedChat chat = encode_chat(conversation, chat_options, num_messages);
  ChatSample result;
  result.sample.origin = origin;
  std::vector<size_t> ends;
  tokenize_chat(chat, chat_options.special_in_content, tokenize, result.sample.ids, ends);
  if (ends.size() != result.sample.ids.size() || (ends.empty() ? 0 : ends.back()) != chat.text.size()) {
    run_error(origin, ": the tokens do not cover the text: ", result.sample.ids.size(), " ids, ", ends.size(),
              " end offsets, text of ", chat.text.size(), " bytes");
  }
  result.sample.weights = token_weights(target_bodies(chat, conversation.messages, loss_options), ends);
  result.text = std::move(chat.text);
  return result;
}

}  // namespace

History history(std::string_view name) {
  if (name == "auto") return History::Auto;
  if (name == "all") return History::All;
  if (name == "last_turn") return History::LastTurn;
  if (name == "split") return History::Split;
  throw ChatError("invalid_history", std::nullopt,
                  "history is \"" + std::string(name) + "\"; known are auto, all, last_turn and split");
}

std::vector<TargetBody> target_bodies(const EncodedChat& chat, const JsonValue& messages, const LossOptions& options) {
  const std::vector<float> weights = loss_weights(messages.as_array());
  const bool all = options.history == History::All || (options.history == History::Auto && !chat.drops_reasoning);
  std::vector<TargetBody> targets;
  for (const AssistantBody& body : chat.bodies) {
    const float weight = weights.at(body.message_index);
    if ((!all && !body.in_last_turn) || weight == 0.0f) continue;
    TargetBody target{body.begin, body.end, {}};
    for (const BodyPart& part : body.parts) {
      const float component_weight = options.component_weights[static_cast<size_t>(part.component)];
      target.parts.push_back({part.begin, part.end, weight * component_weight});
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

std::vector<float> token_weights(std::span<const TargetBody> bodies, std::span<const size_t> ends) {
  std::vector<float> weights(ends.size(), 0.0f);
  size_t body = 0, part = 0, begin = 0;
  for (size_t t = 0; t < ends.size(); begin = ends[t++]) {
    while (body < bodies.size() && bodies[body].end <= begin) ++body, part = 0;
    if (body == bodies.size()) break;
    if (begin < bodies[body].begin || ends[t] > bodies[body].end) continue;
    const auto& parts = bodies[body].parts;
    while (parts[part].end <= begin) ++part;  // the parts tile the body and begin < its end
    weights[t] = parts[part].weight;
  }
  return weights;
}

std::vector<ChatSample> chat_samples(const Conversation& conversation, const ChatOptions& chat_options,
                                     const LossOptions& loss_options, const TokenizeFunction& tokenize,
                                     const std::string& origin) {
  std::vector<size_t> turn_ends;
  if (loss_options.history == History::Split) turn_ends = answered_turn_ends(conversation, chat_options.variant);
  const size_t num_messages = conversation.messages.size();
  if (turn_ends.empty()) {
    std::vector<ChatSample> samples;
    samples.push_back(encode_sample(conversation, num_messages, chat_options, loss_options, tokenize, origin));
    return samples;
  }
  encode_chat(conversation, chat_options);  // reports a bad message after the last answer too, with its own index
  std::vector<ChatSample> samples;
  for (size_t turn = 0; turn < turn_ends.size(); ++turn) {
    if (loss_options.only_part.value_or(turn) != turn) {
      samples.emplace_back();
      continue;
    }
    const std::string turn_origin = origin + " turn " + std::to_string(turn + 1);
    samples.push_back(encode_sample(conversation, turn_ends[turn], chat_options, loss_options, tokenize, turn_origin));
  }
  return samples;
}

}  // namespace asterism::data
