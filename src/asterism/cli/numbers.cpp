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
