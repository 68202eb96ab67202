#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "asterism/data/byte_range.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace asterism::data {

/// Working memory of a search. Each thread needs its own; any Regex may use it.
class RegexScratch {
 public:
  RegexScratch();

 private:
  friend class Regex;
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
  };
  std::unique_ptr<pcre2_real_match_data_8, Free> match_;
};

/// A split pattern of a tokenizer.json. Such patterns are written for the Oniguruma library; here they run on PCRE2.
/// Only syntax that means the same in both, or can be rewritten to do so, is accepted:
///   literals, `.`, `|`, ( ), (?: ), (?i: ), look-around, [ ] classes without nesting or intersection,
///   ? * + {n} {n,} {n,m} with lazy and possessive ? and +, \s \S, \p{X} \P{X} for X = L M N P S Z, \r \n \t \f \v,
///   \xHH, and escaped punctuation.
/// White space is the Unicode property White_Space; L M N P S are those of Unicode 16.0 (see unicode_additions.h).
/// A compiled pattern is immutable: `find` may run in many threads, each with its own scratch.
class Regex {
 public:
  /// InputError that names the first construct outside the list, and for patterns that can match nothing (a split at
  /// every position is not what such a pattern means).
  static Regex compile(std::string_view pattern);
  /// Matches exactly `text`, which must not be empty.
  static Regex literal(std::string_view text);
  /// Matches one word character: alphabetic, mark, decimal digit, connector or joiner (Unicode TR 18, annex C).
  static Regex word_character();

  /// The first match at or after byte `from` (a character boundary, at most subject.size()). `subject` must be valid
  /// UTF-8; look-around sees nothing outside it. RunError when PCRE2 gives up.
  std::optional<ByteRange> find(std::string_view subject, size_t from, RegexScratch& scratch) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  static Regex build(std::string_view pattern, const std::string& translated);

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string pattern_;  // as given, for messages
};

/// The pattern as PCRE2 sees it; what Regex::compile does first. InputError as there.
std::string translate_pattern(std::string_view pattern);

}  // namespace asterism::data
