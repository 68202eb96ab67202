#include "tests/fuzz/fuzz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "asterism/core/error.h"
#include "asterism/data/utf8.h"

namespace asterism::fuzz {
namespace {

using data::JsonValue;

constexpr std::string_view kMarkers[] = {"<｜begin▁of▁sentence｜>",
                                         "<｜end▁of▁sentence｜>",
                                         "<think>",
                                         "</think>",
                                         "｜DSML｜",
                                         "<｜User｜>",
                                         "<｜Assistant｜>",
                                         "\n\n<｜DSML｜tool_calls>\n",
                                         "</｜DSML｜tool_calls>",
                                         "<｜DSML｜invoke name=\"f\">\n",
                                         "<｜DSML｜invoke",
                                         "</｜DSML｜invoke>",
                                         "<｜DSML｜parameter name=\"a\" string=\"true\">",
                                         "<｜DSML｜parameter",
                                         "</｜DSML｜parameter>",
                                         "/｜DSML｜parameter",
                                         "\n\n<｜DSML｜ calls>",
                                         "</｜DSML｜ invoke>",
                                         "\" string=\"false\">",
                                         "\">\n",
                                         ">\n",
                                         "\n\n",
                                         "\r\n",
                                         "\n",
                                         "<",
                                         ">",
                                         "\"",
                                         "\\",
                                         "\\u0000",
                                         "\\ud800",
                                         "\\udc00",
                                         "\\n",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "[[[[[[[[",
                                         "null",
                                         "NaN",
                                         "-Infinity",
                                         "1e999",
                                         "-",
                                         "0",
                                         "123456789012345678901234567890",
                                         "\"role\": \"tool\"",
                                         "\"messages\":",
                                         "\"tool_calls\": [",
                                         "\xEF\xBB\xBF",
                                         "\xff",
                                         "\xc3",
                                         "\xe4\xbd",
                                         "\xed\xa0\x80",
                                         "\xf4\x90\x80\x80"};

std::string random_part(Dice& dice, const std::string& text) {
  const size_t begin = dice.below(text.size() + 1);
  return text.substr(begin, dice.below(std::min<size_t>(text.size() - begin, 200) + 1));
}

void change(Dice& dice, std::string& text, std::span<const std::string> others) {
  const size_t at = dice.below(text.size() + 1);
  const size_t length = dice.below(std::min<size_t>(text.size() - at, 20) + 1);
  switch (dice.below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << dice.below(8)));
      return;
    case 1:
      text.insert(at, 1, static_cast<char>(dice.below(256)));
      return;
    case 2:
      text.erase(at, length);
      return;
    case 3:
      if (dice.chance(0.5)) text.resize(at);
      return;
    case 4:
      text.insert(at, random_part(dice, text));
      return;
    case 5:
      text.replace(at, length, dice.pick(kMarkers));
      return;
    case 6:
      text.insert(at, dice.pick(kMarkers));
      return;
    default:
      if (!others.empty()) text.replace(at, length, random_part(dice, dice.pick(others)));
      return;
  }
}

}  // namespace

void for_each_input(std::string_view target, uint64_t count, const std::function<void(Dice& dice)>& check) {
  using Clock = std::chrono::steady_clock;
  const bool is_long = std::getenv("ASTERISM_LONG") != nullptr;
  const auto end = Clock::now() + std::chrono::seconds(60);
  uint64_t number = 0;
  for (; is_long ? Clock::now() < end : number < count; ++number) {
    Dice dice(1, target, number);
    try {
      check(dice);
    } catch (const InputError&) {
      // What a target answers to input that is wrong.
    } catch (const std::exception& error) {
      ADD_FAILURE() << "unexpected exception: " << error.what();
    }
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "at input " << number << " of " << target;
      return;
    }
  }
  ::testing::Test::RecordProperty(std::string(target), static_cast<int>(number));
}

std::string mutated(Dice& dice, std::string text, std::span<const std::string> others) {
  for (uint64_t i = 0; i <= dice.below(4); ++i) change(dice, text, others);
  return text;
}

void mutate_values(Dice& dice, JsonValue& value) {
  const bool has_children = value.size() > 0;
  if (!has_children || dice.chance(0.1)) {
    value = dice.chance(0.3) ? JsonValue(data::replace_invalid_utf8(dice.pick(kMarkers))) : test::hostile_json(dice, 2);
    return;
  }
  const size_t child = dice.below(value.size());
  if (value.is_array()) {
    JsonValue::Array& elements = value.as_array();
    if (dice.chance(0.1)) {
      elements.push_back(JsonValue(elements[child]));
    } else if (dice.chance(0.1)) {
      elements.erase(elements.begin() + static_cast<int64_t>(child));
    } else {
      mutate_values(dice, elements[child]);
    }
  } else {
    JsonValue::Object& members = value.as_object();
    if (dice.chance(0.1)) {
      members.erase(members.begin() + static_cast<int64_t>(child));
    } else {
      mutate_values(dice, members[child].value);
    }
  }
}

std::vector<std::string_view> random_pieces(Dice& dice, std::string_view text) {
  const uint64_t largest = dice.chance(0.3) ? 1 : 1 + dice.below(40);
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t size = std::min<size_t>(text.size(), 1 + dice.below(largest));
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

}  // namespace asterism::fuzz
