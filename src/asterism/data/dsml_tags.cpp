#include "asterism/data/dsml_tags.h"

#include <algorithm>

#include "asterism/data/chat_markup.h"
#include "asterism/data/python_json.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

constexpr std::string_view kNameStart = "name=\"";
constexpr std::string_view kNameEnd = "\">";
constexpr std::string_view kBlank = " \t\r\n";

/// What \s of Python's re matches in text: Unicode white space and the four separators U+001C to U+001F.
bool is_python_space(char32_t value) {
  if (value <= 0x20) return (value >= 0x09 && value <= 0x0D) || value >= 0x1C;
  if (value >= 0x2000 && value <= 0x200A) return true;
  constexpr char32_t kOthers[] = {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  return std::find(std::begin(kOthers), std::end(kOthers), value) != std::end(kOthers);
}

size_t skip_python_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Sequence next = read_utf8(text, at);
    if (!next.valid || !is_python_space(next.value)) break;
    at += next.length;
  }
  return at;
}

std::optional<std::string_view> name_between(std::string_view text, std::string_view ending) {
  text.remove_prefix(skip_python_space(text));
  if (!text.starts_with(kNameStart) || !text.ends_with(ending)) return std::nullopt;
  text.remove_prefix(kNameStart.size());
  if (text.size() < ending.size()) return std::nullopt;
  return text.substr(0, text.size() - ending.size());
}

std::string_view without_blank_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlank);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::optional<bool> truth_of(std::string_view word) {
  std::string lower(word);
  for (char& letter : lower) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  if (lower == "true") return true;
  if (lower == "false") return false;
  return std::nullopt;
}

}  // namespace

CallTags::CallTags(ChatVariant variant) {
  const DsmlTags& names = dsml_tags(variant);
  const auto open = [](std::string_view name) { return std::string("<").append(name); };
  const auto close = [](std::string_view name) { return std::string("</").append(name).append(">"); };
  block_open = open(names.calls);
  block_close = close(names.calls);
  invoke_open = open(names.invoke);
  invoke_close = close(names.invoke);
  parameter_open = open(names.parameter);
  parameter_close = close(names.parameter);
}

std::optional<std::string_view> strict_invoke_name(std::string_view text) {
  const auto name = name_between(text, "\">\n");
  return name ? name : name_between(text, "\">\n\n");
}

std::optional<InvokeName> lenient_invoke_name(std::string_view text) {
  if (const auto name = strict_invoke_name(text)) return InvokeName{*name, true};
  if (const auto name = name_between(without_blank_end(text), kNameEnd)) return InvokeName{*name, false};
  return std::nullopt;
}

std::optional<DsmlParameter> strict_parameter(std::string_view text) {
  constexpr std::string_view kStart = " name=\"";
  constexpr std::string_view kAttribute = "\" string=\"";
  if (!text.starts_with(kStart)) return std::nullopt;
  text.remove_prefix(kStart.size());
  for (size_t at = text.find(kAttribute); at != std::string_view::npos; at = text.find(kAttribute, at + 1)) {
    const std::string_view rest = text.substr(at + kAttribute.size());
    for (const bool is_string : {true, false}) {
      const std::string_view word = is_string ? "true\">" : "false\">";
      if (rest.starts_with(word)) return DsmlParameter{text.substr(0, at), rest.substr(word.size()), is_string};
    }
  }
  return std::nullopt;
}

std::optional<DsmlParameter> lenient_parameter(std::string_view text) {
  DsmlParameter parameter{};
  bool named = false;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    if (text.starts_with('>')) break;
    const size_t name_size = text.find("=\"");
    if (name_size == 0 || name_size == std::string_view::npos) return std::nullopt;
    const std::string_view name = text.substr(0, name_size);
    const bool is_word =
        std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    if (!is_word) return std::nullopt;
    text.remove_prefix(name_size + 2);
    const size_t value_size = text.find('"');
    if (value_size == std::string_view::npos) return std::nullopt;
    const std::string_view value = text.substr(0, value_size);
    text.remove_prefix(value_size + 1);
    if (name == "name") {
      parameter.key = value;
      named = true;
    } else if (name == "string") {
      parameter.is_string = truth_of(value);
    }
  }
  if (!named) return std::nullopt;
  parameter.value = text.substr(1);
  return parameter;
}

bool holds_other_dialect(std::string_view text, ChatVariant variant) {
  const ChatVariant other = variant == ChatVariant::V4_1 ? ChatVariant::V4_0731 : ChatVariant::V4_1;
  return text.find(CallTags(other).block_open) != std::string_view::npos;
}

bool is_json(std::string_view text) {
  JsonValue value;
  return !parse_json(text, value);
}

std::string json_string(std::string_view text) {
  return to_json(JsonValue(std::string(text)));
}

void ArgumentsText::set(const std::string& key, std::string json) {
  const auto [place, is_new] = places_.try_emplace(key, entries_.size());
  if (is_new)
    entries_.emplace_back(key, std::move(json));
  else
    entries_[place->second].second = std::move(json);
}

std::string ArgumentsText::text() const {
  std::string out = "{";
  for (const auto& [key, json] : entries_) {
    if (out.size() > 1) out += ", ";
    out += json_string(key) + ": " + json;
  }
  return out + "}";
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlank) == std::string_view::npos;
}

}  // namespace asterism::data
