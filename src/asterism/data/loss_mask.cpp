#include "asterism/data/loss_mask.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

bool asks_for_loss(const Json& message) {
  const auto loss = message.find("loss");
  const auto weight = message.find("loss_weight");
  return (loss != message.end() && is_truthy(*loss)) || (weight != message.end() && is_truthy(*weight));
}

float loss_weight(const Json& message, size_t index) {
  float weight = 1.0f;
  if (const auto found = message.find("loss_weight"); found != message.end() && !found->is_null()) {
    if (!found->is_number()) throw ChatError("invalid_loss", index, "loss_weight must be a number");
    weight = found->get<float>();
    if (!(weight >= 0.0f) || !std::isfinite(weight)) {
      throw ChatError("invalid_loss", index, "loss_weight must be finite and at least 0, found " + found->dump());
    }
  }
  if (const auto found = message.find("loss"); found != message.end() && !found->is_null()) {
    if (!found->is_boolean()) throw ChatError("invalid_loss", index, "loss must be true or false");
    if (!found->get<bool>()) return 0.0f;
  }
  return weight;
}

/// Weights are read for every message, so that a bad one is found wherever it stands.
std::vector<float> loss_weights(const Json& messages) {
  std::vector<float> weights(messages.size(), 0.0f);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (message.at("role") == "assistant") {
      weights[i] = loss_weight(message, i);
    } else if (asks_for_loss(message)) {
      throw ChatError("invalid_loss", i, "only assistant messages can be trained; remove loss and loss_weight here");
    }
  }
  return weights;
}

Sample encode_sample(const Json& messages, const ChatOptions& chat_options, const LossOptions& loss_options,
                     const TokenizeFunction& tokenize, const std::string& origin) {
  const EncodedChat chat = encode_chat(messages, chat_options);
  Sample sample;
  sample.origin = origin;
  std::vector<size_t> ends;
  tokenize(chat.text, sample.ids, ends);
  if (ends.size() != sample.ids.size() || (ends.empty() ? 0 : ends.back()) != chat.text.size()) {
    run_error(origin, ": the tokens do not cover the text: ", sample.ids.size(), " ids, ", ends.size(),
              " end offsets, text of ", chat.text.size(), " bytes");
  }
  sample.weights = token_weights(target_bodies(chat, messages, loss_options), ends);
  return sample;
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

std::vector<TargetBody> target_bodies(const EncodedChat& chat, const Json& messages, const LossOptions& options) {
  const std::vector<float> weights = loss_weights(messages);
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

std::vector<Sample> encode_samples(const Json& messages, const ChatOptions& chat_options,
                                   const LossOptions& loss_options, const TokenizeFunction& tokenize,
                                   const std::string& origin) {
  const auto turn_ends = loss_options.history == History::Split ? answered_turn_ends(messages) : std::vector<size_t>{};
  if (turn_ends.empty()) return {encode_sample(messages, chat_options, loss_options, tokenize, origin)};
  encode_chat(messages, chat_options);  // reports a bad message after the last answer too, with its own index
  std::vector<Sample> samples;
  Json prefix = Json::array();
  for (size_t turn = 0; turn < turn_ends.size(); ++turn) {
    while (prefix.size() < turn_ends[turn]) prefix.push_back(messages[prefix.size()]);
    if (loss_options.only_part.value_or(turn) != turn) {
      samples.emplace_back();
      continue;
    }
    const std::string turn_origin = origin + " turn " + std::to_string(turn + 1);
    samples.push_back(encode_sample(prefix, chat_options, loss_options, tokenize, turn_origin));
  }
  return samples;
}

}  // namespace asterism::data
