#include "asterism/cli/chat_rows.h"

#include <charconv>

namespace asterism::cli {

namespace {

using data::ChatError;
using data::History;
using Json = nlohmann::ordered_json;

/// 0.3f as 0.3: the double nearest to the shortest digits of the float.
double shortest_double(float value) {
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof digits, value);
  double result = 0.0;
  std::from_chars(digits, written.ptr, result);
  return result;
}

Json sample_object(const data::ChatSample& sample) {
  Json weights = Json::array();
  for (const float weight : sample.sample.weights) weights.push_back(shortest_double(weight));
  return {{"text", sample.text}, {"ids", sample.sample.ids}, {"weights", std::move(weights)}};
}

}  // namespace

Json encode_chat_row(data::JsonValue row, const data::ChatDefaults& defaults, const data::TokenizeFunction& tokenize) {
  const data::ChatRow chat = data::read_chat_row(std::move(row), defaults);
  const auto samples = data::chat_samples(chat.conversation, chat.chat, chat.loss, tokenize, "row");
  if (chat.loss.history != History::Split) return sample_object(samples.front());
  Json objects = Json::array();
  for (const data::ChatSample& sample : samples) objects.push_back(sample_object(sample));
  return {{"samples", std::move(objects)}};
}

Json error_row(const ChatError& error) {
  Json object = {{"category", error.category()}, {"message", error.explanation()}, {"message_index", nullptr}};
  if (error.message_index()) object["message_index"] = *error.message_index();
  return {{"error", std::move(object)}};
}

}  // namespace asterism::cli
