#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace asterism {

/// Wrong usage or wrong input, found before work starts (a file, a recipe, a row, an argument). Exit code 2.
/// The text says what is wrong, where, what was expected, what was found and how to fix it.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The work failed while running (disk full, non-finite loss). Exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A comparison or verification did not hold. Exit code 3.
class VerificationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The parts written one after the other with operator<<.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
[[noreturn]] void input_error(const Parts&... parts) {
  throw InputError(text(parts...));
}

template <typename... Parts>
[[noreturn]] void run_error(const Parts&... parts) {
  throw RunError(text(parts...));
}

/// The text of any exception for a user: without the stack trace that c10::Error carries.
std::string user_message(const std::exception& error);

/// The known name nearest to `name` by edit distance, or "" when none is near: for "did you mean".
template <typename Range>
std::string nearest_name(const std::string& name, const Range& known);

/// Levenshtein distance; where a text is longer than 500 bytes, an upper bound that costs nothing.
size_t edit_distance(const std::string& a, const std::string& b);

template <typename Range>
std::string nearest_name(const std::string& name, const Range& known) {
  std::string best;
  size_t best_distance = name.size() / 2 + 2;
  for (const auto& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace asterism
