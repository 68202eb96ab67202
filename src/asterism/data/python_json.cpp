#include "asterism/data/python_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "asterism/data/excerpt.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

constexpr size_t kMaxDigits = 4300;
constexpr size_t kFewMembers = 16;
constexpr size_t kShownKey = 40;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_high_surrogate(uint32_t unit) {
  return unit >= 0xD800 && unit < 0xDC00;
}

bool is_low_surrogate(uint32_t unit) {
  return unit >= 0xDC00 && unit < 0xE000;
}

/// Gives every key one member: the last value, where the key stood first.
void merge_equal_keys(JsonValue::Object& members) {
  if (members.size() < 2) return;
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return members[a].key < members[b].key; });
  std::vector<bool> repeated(members.size(), false);
  for (size_t i = 1, first = order[0]; i < order.size(); ++i) {
    if (members[order[i]].key != members[first].key) {
      first = order[i];
      continue;
    }
    members[first].value = std::move(members[order[i]].value);
    repeated[order[i]] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (repeated[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
}

bool has_equal_keys(const JsonValue::Object& members) {
  if (members.size() > kFewMembers) return true;  // perhaps: sorting finds out in less time
  for (size_t i = 1; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (members[i].key == members[j].key) return true;
    }
  }
  return false;
}

/// A key that two members have.
std::optional<std::string_view> repeated_key(const JsonValue::Object& members) {
  if (!has_equal_keys(members)) return std::nullopt;
  std::vector<std::string_view> keys;
  for (const auto& member : members) keys.push_back(member.key);
  std::sort(keys.begin(), keys.end());
  const auto repeated = std::adjacent_find(keys.begin(), keys.end());
  return repeated == keys.end() ? std::nullopt : std::optional(*repeated);
}

class Parser {
 public:
  Parser(std::string_view text, EqualKeys equal_keys) : text_(text), equal_keys_(equal_keys) {}

  std::optional<JsonFault> parse(JsonValue& value) {
    skip_space();
    if (!read_value(value, 0)) return fault_;
    skip_space();
    if (at_ < text_.size() && !fail("text follows the value")) return fault_;
    return lone_surrogate_;
  }

 private:
  bool fail(std::string reason, JsonFault::Kind kind = JsonFault::Kind::Syntax) {
    fault_ = {kind, at_, std::move(reason)};
    return false;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool accept(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool read_value(JsonValue& value, int depth) {
    switch (peek()) {
      case '"': {
        std::string read;
        if (!read_string(read)) return false;
        value = JsonValue(std::move(read));
        return true;
      }
      case '{':
        return read_object(value, depth + 1);
      case '[':
        return read_array(value, depth + 1);
      default:
        return read_literal(value) || read_number(value);
    }
  }

  bool read_literal(JsonValue& value) {
    if (accept("null")) return value = JsonValue(), true;
    if (accept("true")) return value = JsonValue(true), true;
    if (accept("false")) return value = JsonValue(false), true;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (accept("NaN")) return value = JsonValue(std::numeric_limits<double>::quiet_NaN()), true;
    if (accept("Infinity")) return value = JsonValue(kInfinity), true;
    if (accept("-Infinity")) return value = JsonValue(-kInfinity), true;
    return false;
  }

  bool read_number(JsonValue& value) {
    const size_t begin = at_;
    if (peek() == '-') ++at_;
    const size_t digits = at_;
    if (!is_digit(peek())) return at_ = begin, fail("a value was expected");
    if (peek() == '0') {
      ++at_;
    } else {
      skip_digits();
    }
    const size_t whole_end = at_;
    if (peek() == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      ++at_;
      skip_digits();
    }
    skip_exponent();
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (at_ > whole_end) {
      value = JsonValue(nearest_float(number));
      return true;
    }
    if (whole_end - digits > kMaxDigits) return at_ = begin, fail("a whole number has more than 4,300 digits");
    value = whole_number(number);
    return true;
  }

  void skip_digits() {
    while (is_digit(peek())) ++at_;
  }

  void skip_exponent() {
    if (peek() != 'e' && peek() != 'E') return;
    size_t digits = at_ + 1;
    if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
    if (digits >= text_.size() || !is_digit(text_[digits])) return;
    at_ = digits;
    skip_digits();
  }

  static JsonValue whole_number(std::string_view number) {
    int64_t value = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (read.ec == std::errc()) return JsonValue(value);
    return JsonValue(JsonValue::BigInteger{std::string(number)});
  }

  static double nearest_float(std::string_view number) {
    double value = 0.0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (read.ec == std::errc()) return value;
    return std::strtod(std::string(number).c_str(), nullptr);  // out of range: from_chars does not say on which side
  }

  bool read_string(std::string& out) {
    ++at_;  // the quote
    while (true) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_.substr(begin, at_ - begin));
      if (at_ == text_.size()) return fail("a string does not end");
      if (accept("\"")) return true;
      if (text_[at_] != '\\') return fail("a control character stands in a string");
      if (!read_escape(out)) return false;
    }
  }

  bool read_escape(std::string& out) {
    ++at_;  // the backslash
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
    const char escape = peek();
    if (escape == 'u') return read_unicode_escape(out);
    const size_t index = at_ < text_.size() ? kEscapes.find(escape) : std::string_view::npos;
    if (index == std::string_view::npos) return fail("an unknown escape stands in a string");
    out += kCharacters[index];
    ++at_;
    return true;
  }

  bool read_unicode_escape(std::string& out) {
    const size_t begin = at_ - 1;
    uint32_t unit = 0, low = 0;
    if (!read_code_unit(unit)) return fail("\\u needs four hexadecimal digits");
    if (is_high_surrogate(unit) && text_.substr(at_, 2) == "\\u") {
      const size_t second = at_++;
      if (read_code_unit(low) && is_low_surrogate(low)) {
        append_utf8(out, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
        return true;
      }
      at_ = second;  // an escape of its own
    }
    if (is_high_surrogate(unit) || is_low_surrogate(unit)) {
      if (!lone_surrogate_) lone_surrogate_ = {JsonFault::Kind::LoneSurrogate, begin, "half a surrogate pair"};
      unit = 0xFFFD;
    }
    append_utf8(out, unit);
    return true;
  }

  /// At the letter u of an escape.
  bool read_code_unit(uint32_t& unit) {
    if (at_ + 5 > text_.size()) return false;
    const char* digits = text_.data() + at_ + 1;
    const auto read = std::from_chars(digits, digits + 4, unit, 16);
    if (read.ec != std::errc() || read.ptr != digits + 4) return false;
    at_ += 5;
    return true;
  }

  bool enter(int depth) {
    if (depth > kMaxJsonDepth) return fail("brackets nest too deep", JsonFault::Kind::TooDeep);
    ++at_;
    skip_space();
    return true;
  }

  bool read_array(JsonValue& value, int depth) {
    if (!enter(depth)) return false;
    JsonValue::Array elements;
    if (!accept("]")) {
      do {
        skip_space();
        if (!read_value(elements.emplace_back(), depth)) return false;
        skip_space();
      } while (accept(","));
      if (!accept("]")) return fail("a comma or ] was expected");
    }
    value = JsonValue(std::move(elements));
    return true;
  }

  bool read_object(JsonValue& value, int depth) {
    if (!enter(depth)) return false;
    JsonValue::Object members;
    if (!accept("}")) {
      do {
        skip_space();
        if (peek() != '"') return fail("a key in quotes was expected");
        JsonValue::Member& member = members.emplace_back();
        if (!read_string(member.key)) return false;
        skip_space();
        if (!accept(":")) return fail("a colon was expected");
        skip_space();
        if (!read_value(member.value, depth)) return false;
        skip_space();
      } while (accept(","));
      if (!accept("}")) return fail("a comma or } was expected");
    }
    if (equal_keys_ == EqualKeys::AreFault) {
      if (const auto key = repeated_key(members)) {
        return fail("the key \"" + readable_prefix(*key, kShownKey) + "\" stands twice in one object",
                    JsonFault::Kind::EqualKeys);
      }
    } else if (has_equal_keys(members)) {
      merge_equal_keys(members);
    }
    value = JsonValue(std::move(members));
    return true;
  }

  std::string_view text_;
  EqualKeys equal_keys_;
  size_t at_ = 0;
  std::optional<JsonFault> fault_, lone_surrogate_;
};

void write_string(std::string_view text, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t written = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text.substr(written, i - written));
    written = i + 1;
    const size_t index = kEscaped.find(text[i]);
    if (index != std::string_view::npos) {
      out.append({'\\', kLetters[index]});
    } else {
      out.append("\\u00").append({kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  out.append(text.substr(written));
  out += '"';
}

/// Python's repr: the shortest digits that read back as the same float, in scientific notation only when the point
/// would stand more than 16 places behind, or more than 3 places in front of, the first digit.
void write_float(double value, std::string& out) {
  if (std::isnan(value)) return void(out += "NaN");
  if (std::isinf(value)) return void(out += value < 0 ? "-Infinity" : "Infinity");
  char buffer[32] = {};
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = shortest.find('e');
  std::string digits(1, shortest[0]);
  if (mark > 2) digits.append(shortest.substr(2, mark - 2));
  const int exponent = std::atoi(shortest.data() + mark + 1);  // of the first digit
  const int point = exponent + 1;                              // digits in front of the decimal point
  if (std::signbit(value)) out += '-';
  if (point > 16 || point <= -4) {
    out.append(digits, 0, 1);
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    out.append(exponent < 0 ? "e-" : "e+");
    if (std::abs(exponent) < 10) out += '0';
    out.append(std::to_string(std::abs(exponent)));
  } else if (point <= 0) {
    out.append("0.").append(static_cast<size_t>(-point), '0').append(digits);
  } else {
    const size_t before = static_cast<size_t>(point);
    if (digits.size() < before + 1) digits.append(before + 1 - digits.size(), '0');
    out.append(digits, 0, before).append(1, '.').append(digits, before);
  }
}

}  // namespace

std::optional<JsonFault> parse_json(std::string_view text, JsonValue& value, EqualKeys equal_keys) {
  return Parser(text, equal_keys).parse(value);
}

void write_json(const JsonValue& value, std::string& out) {
  if (value.is_null()) return void(out += "null");
  if (value.is_boolean()) return void(out += value.as_boolean() ? "true" : "false");
  if (value.is_int64()) return void(out += std::to_string(value.as_int64()));
  if (value.is_big_integer()) return void(out += value.as_big_integer().digits);
  if (value.is_float()) return write_float(value.as_float(), out);
  if (value.is_string()) return write_string(value.as_string(), out);
  const char* separator = "";
  if (value.is_array()) {
    out += '[';
    for (const JsonValue& element : value.as_array()) {
      write_json(element, out.append(separator));
      separator = ", ";
    }
    out += ']';
    return;
  }
  out += '{';
  for (const auto& [key, member] : value.as_object()) {
    write_string(key, out.append(separator));
    write_json(member, out.append(": "));
    separator = ", ";
  }
  out += '}';
}

std::string to_json(const JsonValue& value) {
  std::string out;
  write_json(value, out);
  return out;
}

}  // namespace asterism::data
