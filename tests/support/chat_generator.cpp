#include "tests/support/chat_generator.h"

#include <cmath>
#include <cstring>
#include <iterator>

#include "asterism/data/chat_markup.h"
#include "asterism/data/python_json.h"
#include "asterism/data/utf8.h"

namespace asterism::test {
namespace {

using data::JsonValue;

constexpr std::string_view kPieces[] = {
    "word", " the", "12", "00123", "-1.5e3", "true", "null", " ", "  ", "\n", "\n\n", "\n\n\n", "\t", "\r\n", ".", ",",
    "\"", "'", "\\", "\\n", "\">", "\">\n", "/", "<", ">", "</", "<>", "&lt;", "{", "}", "[1,", "\"a\": ", "=\"",
    // look-alikes and broken pieces of markup
    "<|end_of_sentence|>", "<|DSML|tool_calls>", "|DSML|", "<｜", "｜>", "｜", "DSML", "<｜DSML", "｜DSML|", "<think",
    "</think", "think>", "< think>", "</ think>", "<THINK>", "\n\n<", "\n\n</", "<tool_calls>", "</invoke>",
    "</parameter>", "<invoke name=\"f\">\n", " name=\"a\" ", "<tool_result>", "</tool_result>", "<｜User｜>",
    "<｜Assistant｜>", "<｜end▁of", "▁sentence｜>", "string=\"true\">",
    // characters of all kinds
    "é", "你好", "こんにちは", "สวัสดี", "🙂", "👩‍👩‍👧", "\u00a0", "\u2028", "\ufeff", "e\u0301", "\x01",
    "\x1f", "\x7f", "\u0085"};

// In which characters of kPieces cannot stand beside each other, because they would be a token.
bool holds_special_token(std::string_view text) {
  for (const std::string_view token : {data::kBos, data::kEos, data::kThinkOpen, data::kThinkClose, data::kDsml}) {
    if (text.find(token) != std::string_view::npos) return true;
  }
  return false;
}

std::string framed_text(Dice& dice, size_t max_pieces, std::string_view forbidden) {
  std::string text = hostile_text(dice, max_pieces);
  while (text.find(forbidden) != std::string::npos) text = hostile_text(dice, max_pieces);
  return text;
}

double random_float(Dice& dice) {
  if (dice.chance(0.5)) return static_cast<double>(dice.between(-1000000, 1000000)) / 64.0;
  const uint64_t bits = dice.bits();
  double value = 0.0;
  std::memcpy(&value, &bits, sizeof value);
  return std::isfinite(value) ? value : 0.0;
}

JsonValue random_number(Dice& dice) {
  switch (dice.below(4)) {
    case 0:
      return JsonValue(dice.between(-5, 100));
    case 1:
      return JsonValue(static_cast<int64_t>(dice.bits()));
    case 2:
      return JsonValue(JsonValue::BigInteger{"9" + std::to_string(dice.bits()) + std::to_string(dice.bits())});
    default:
      return JsonValue(random_float(dice));
  }
}

/// JSON text of a value as people and programs write it: with and without spaces, indented, escaped.
void write_spelled(const JsonValue& value, Dice& dice, std::string& out) {
  constexpr std::string_view kSpaces[] = {"", " ", "\n  ", ""};
  const auto space = [&] { out += dice.pick(kSpaces); };
  space();
  const bool is_object = value.is_object();
  if (!is_object && !value.is_array()) {
    out += data::to_json(value);
  } else {
    out += is_object ? '{' : '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ',';
      space();
      if (is_object) {
        out += data::to_json(JsonValue(value.as_object()[i].key));
        space();
        out += ':';
      }
      write_spelled(is_object ? value.as_object()[i].value : value.as_array()[i], dice, out);
    }
    out += is_object ? '}' : ']';
  }
  space();
}

JsonValue random_call(Dice& dice, int number) {
  JsonValue arguments = hostile_arguments(dice);
  JsonValue spelled = arguments;
  if (dice.chance(0.7)) {
    std::string text;
    write_spelled(arguments, dice, text);
    spelled = JsonValue(std::move(text));
  } else if (arguments.size() == 0 && dice.chance(0.5)) {
    spelled = JsonValue();
  }
  JsonValue function = JsonValue::object({{"name", framed_text(dice, 3, "\">\n")}, {"arguments", std::move(spelled)}});
  return JsonValue::object({{"id", "call_" + std::to_string(number)}, {"type", "function"}, {"function", function}});
}

JsonValue random_tools(Dice& dice) {
  JsonValue::Array tools;
  for (uint64_t i = 0; i <= dice.below(3); ++i) {
    JsonValue function = JsonValue::object({{"name", hostile_text(dice, 2)}, {"parameters", hostile_json(dice, 3)}});
    tools.push_back(JsonValue::object({{"type", "function"}, {"function", std::move(function)}}));
  }
  return tools;
}

/// An answer, or a call of tools with their results, and then another one.
void add_answer(Dice& dice, bool reasons, int depth, JsonValue::Array& messages) {
  JsonValue answer = JsonValue::object({{"role", "assistant"}, {"content", hostile_text(dice, 8)}});
  if (reasons) answer.set(dice.chance(0.5) ? "reasoning_content" : "reasoning", hostile_text(dice, 8));
  const bool calls = depth < 3 && dice.chance(0.5);
  if (calls) {
    JsonValue::Array list;
    const int count = static_cast<int>(dice.between(1, 3));
    for (int i = 0; i < count; ++i) list.push_back(random_call(dice, i));
    answer.set("tool_calls", std::move(list));
  }
  messages.push_back(std::move(answer));
  if (!calls) return;
  for (int i = static_cast<int>(dice.between(0, 2)); i >= 0; --i) {
    messages.push_back(JsonValue::object(
        {{"role", "tool"}, {"tool_call_id", "call_" + std::to_string(i)}, {"content", hostile_text(dice, 8)}}));
  }
  add_answer(dice, reasons, depth + 1, messages);
}

}  // namespace

std::string hostile_text(Dice& dice, size_t max_pieces) {
  std::string text;
  for (uint64_t i = dice.below(max_pieces + 1); i > 0; --i) {
    const size_t before = text.size();
    text += dice.pick(kPieces);
    if (holds_special_token(text)) text.resize(before);
  }
  return text;
}

JsonValue hostile_json(Dice& dice, int max_depth) {
  switch (dice.below(max_depth > 0 ? 7 : 5)) {
    case 0:
      return JsonValue();
    case 1:
      return JsonValue(dice.chance(0.5));
    case 2:
      return random_number(dice);
    case 3:
    case 4:
      return JsonValue(hostile_text(dice, 4));
    case 5: {
      JsonValue::Array elements;
      for (uint64_t i = dice.below(4); i > 0; --i) elements.push_back(hostile_json(dice, max_depth - 1));
      return elements;
    }
    default: {
      JsonValue members{JsonValue::Object{}};
      for (uint64_t i = dice.below(4); i > 0; --i)
        members.set(hostile_text(dice, 2), hostile_json(dice, max_depth - 1));
      return members;
    }
  }
}

JsonValue hostile_arguments(Dice& dice) {
  JsonValue arguments{JsonValue::Object{}};
  for (uint64_t i = dice.below(5); i > 0; --i) {
    const std::string key = dice.chance(0.1) ? "arguments" : framed_text(dice, 2, "\" string=\"");
    arguments.set(key, dice.chance(0.5) ? JsonValue(hostile_text(dice, 10)) : hostile_json(dice, 3));
  }
  return arguments;
}

data::Conversation hostile_conversation(Dice& dice) {
  data::Conversation conversation;
  JsonValue::Array messages;
  if (dice.chance(0.5)) messages.push_back(JsonValue::object({{"role", "system"}, {"content", hostile_text(dice, 8)}}));
  const bool reasons = dice.chance(0.7);
  for (uint64_t i = 0; i <= dice.below(3); ++i) {
    if (dice.chance(0.1)) {
      messages.push_back(JsonValue::object({{"role", "latest_reminder"}, {"content", hostile_text(dice, 4)}}));
    }
    messages.push_back(JsonValue::object({{"role", "user"}, {"content", hostile_text(dice, 8)}}));
    add_answer(dice, reasons, 0, messages);
  }
  conversation.messages = std::move(messages);
  if (dice.chance(0.6)) conversation.tools = random_tools(dice);
  return conversation;
}

}  // namespace asterism::test
