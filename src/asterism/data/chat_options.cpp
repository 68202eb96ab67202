#include "asterism/data/chat_options.h"

#include <iterator>
#include <string>

namespace asterism::data {
namespace {

template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr Named<ChatVariant> kVariants[] = {{"v4-preview", ChatVariant::V4Preview},
                                            {"v4-0731", ChatVariant::V4_0731},
                                            {"v4-flash-vision", ChatVariant::V4Vision},
                                            {"v4.1", ChatVariant::V4_1}};
constexpr Named<ThinkingMode> kModes[] = {{"chat", ThinkingMode::Chat}, {"thinking", ThinkingMode::Thinking}};
constexpr Named<EffortLevel> kEfforts[] = {{"none", EffortLevel::None},
                                           {"low", EffortLevel::Low},
                                           {"high", EffortLevel::High},
                                           {"max", EffortLevel::Max},
                                           {"", EffortLevel::Empty}};
constexpr Named<SpecialInContent> kSpecials[] = {
    {"allow", SpecialInContent::Allow}, {"reject", SpecialInContent::Reject}, {"as_text", SpecialInContent::AsText}};

template <typename Value, size_t kCount>
Value named(const Named<Value> (&known)[kCount], std::string_view name, const std::string& option) {
  std::string names;
  for (const auto& candidate : known) {
    if (candidate.name == name) return candidate.value;
    if (!candidate.name.empty()) names.append(names.empty() ? "" : ", ").append(candidate.name);
  }
  throw ChatError("invalid_" + option, std::nullopt, option + " is \"" + std::string(name) + "\"; known are " + names);
}

}  // namespace

ChatVariant chat_variant(std::string_view name) {
  return named(kVariants, name, "variant");
}

const char* variant_name(ChatVariant variant) {
  for (const auto& known : kVariants) {
    if (known.value == variant) return known.name.data();
  }
  return "";
}

ThinkingMode thinking_mode(std::string_view name) {
  return named(kModes, name, "thinking_mode");
}

ReasoningEffort reasoning_effort(std::string_view name) {
  return {named(kEfforts, name, "reasoning_effort")};
}

SpecialInContent special_in_content(std::string_view name) {
  return named(kSpecials, name, "special_in_content");
}

ReasoningEffort effort_of(const JsonValue& value) {
  if (value.is_string()) return reasoning_effort(value.as_string());
  if (value.is_int64() && value.as_int64() >= 1 && value.as_int64() <= 100) {
    return {EffortLevel::Number, static_cast<int>(value.as_int64())};
  }
  throw ChatError("invalid_reasoning_effort", std::nullopt,
                  "reasoning_effort must be none, low, high, max or (v4.1) a whole number from 1 to 100");
}

}  // namespace asterism::data
