#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace asterism::cli {

/// Numbers as users write them, in recipes and on the command line: all of the text or nothing.

/// Decimal digits only, with a - for signed types; nothing for a number that does not fit. 010 is refused (YAML 1.1 and
/// C read it as 8), and so are 1_000 and 0x10. T is int64_t or uint64_t.
template <typename T>
std::optional<T> parse_whole(const std::string& item);

/// A finite decimal number. Unlike YAML 1.1 this takes 1e-4 (without a point) for the number it is. Nothing for a
/// number too large or too small for a double.
std::optional<double> parse_number(const std::string& item);

/// Bytes: a whole number, alone or with KB, MB, GB or TB (powers of 1000) behind it.
std::optional<uint64_t> parse_bytes(const std::string& item);

/// The shortest text that reads as the same number, for YAML 1.1 readers too: these take 1e-04 for text, 1.0e-04 not.
std::string number_text(double value);

}  // namespace asterism::cli
