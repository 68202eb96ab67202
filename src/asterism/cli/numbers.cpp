#include "asterism/cli/numbers.h"

#include <array>
#include <charconv>
#include <cmath>

namespace asterism::cli {

template <typename T>
std::optional<T> parse_whole(const std::string& item) {
  T value = 0;
  const auto [end, failure] = std::from_chars(item.data(), item.data() + item.size(), value);
  if (failure != std::errc() || end != item.data() + item.size()) return std::nullopt;
  const size_t sign = item.front() == '-' ? 1 : 0;
  if (item.size() > sign + 1 && item[sign] == '0') return std::nullopt;
  return value;
}

std::optional<double> parse_number(const std::string& item) {
  const size_t sign = item.starts_with('+') ? 1 : 0;
  double value = 0.0;
  const auto [end, failure] = std::from_chars(item.data() + sign, item.data() + item.size(), value);
  if (failure != std::errc() || end != item.data() + item.size() || !std::isfinite(value)) return std::nullopt;
  if (sign == 1 && item.size() > 1 && item[1] == '-') return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_bytes(const std::string& item) {
  constexpr std::pair<const char*, uint64_t> kUnits[] = {
      {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}};
  uint64_t unit = 1;
  std::string digits = item;
  for (const auto& [name, bytes] : kUnits) {
    if (!item.ends_with(name)) continue;
    unit = bytes;
    digits.resize(digits.size() - 2);
  }
  const auto count = parse_whole<uint64_t>(digits);
  uint64_t total = 0;
  if (!count || __builtin_mul_overflow(*count, unit, &total)) return std::nullopt;
  return total;
}

std::string number_text(double value) {
  std::array<char, 32> buffer;
  const auto [end, failure] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string result(buffer.data(), end);
  const size_t exponent = result.find('e');
  if (exponent != std::string::npos && result.find('.') == std::string::npos) result.insert(exponent, ".0");
  return result;
}

template std::optional<int64_t> parse_whole(const std::string&);
template std::optional<uint64_t> parse_whole(const std::string&);

}  // namespace asterism::cli
