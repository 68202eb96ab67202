#include <cctype>

#include "asterism/core/error.h"
#include "asterism/data/regex.h"
#include "asterism/data/unicode_additions.h"

namespace asterism::data {

namespace {

// Unicode White_Space as the inside of a class. PCRE2's own \s also takes U+180E, which is not white space.
constexpr std::string_view kWhiteSpace = R"(\x{9}-\x{D}\x{85}\p{Z})";
constexpr std::string_view kGroups = "LMNPSZ";

bool is_punctuation(char c) {
  return std::ispunct(static_cast<unsigned char>(c)) != 0;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (!done()) step();
    return std::move(out_);
  }

 private:
  bool done() const { return position_ >= pattern_.size(); }
  bool next_is(std::string_view expected) const { return pattern_.substr(position_).starts_with(expected); }

  [[noreturn]] void unsupported(std::string_view what) const {
    input_error("split pattern \"", pattern_, "\", byte ", position_, ": ", what, " is not supported");
  }

  void copy(size_t count) {
    out_ += pattern_.substr(position_, count);
    position_ += count;
  }

  void step() {
    switch (pattern_[position_]) {
      case '\\':
        return escape(/*in_class=*/false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '{':
        return repetition();
      case '^':
      case '$':
        unsupported("an anchor (^ or $)");
      default:
        return copy(1);
    }
  }

  void group() {
    if (!next_is("(?")) {
      if (next_is("(*")) unsupported("a verb, (*...)");
      return copy(1);
    }
    for (const std::string_view opening : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (next_is(opening)) return copy(opening.size());
    }
    unsupported("this kind of group, (?...)");
  }

  // {n}, {n,} or {n,m}. Other braces are literals in one library or version and repetitions in another.
  void repetition() {
    size_t end = position_ + 1;
    const auto digits = [&] {
      const size_t start = end;
      while (end < pattern_.size() && std::isdigit(static_cast<unsigned char>(pattern_[end]))) ++end;
      return end > start;
    };
    bool well_formed = digits();
    if (end < pattern_.size() && pattern_[end] == ',') {
      ++end;
      digits();
    }
    well_formed = well_formed && end < pattern_.size() && pattern_[end] == '}';
    if (!well_formed) unsupported("a brace that is no repetition like {1,3} (write \\{ for the character)");
    const bool exact = pattern_.substr(position_, end - position_).find(',') == std::string_view::npos;
    copy(end + 1 - position_);
    if (exact && next_is("?")) unsupported("a ? after {n}");  // lazy in PCRE2, optional in Oniguruma
    if (next_is("+"))
      unsupported("a + after a repetition in braces");  // possessive in PCRE2, a second repeat in Oniguruma
  }

  void character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) unsupported("an unescaped ] at the start of a class");
    while (!done() && !next_is("]")) {
      if (next_is("\\")) {
        escape(/*in_class=*/true);
      } else if (next_is("[")) {
        unsupported("a class inside a class (write \\[ for the character)");
      } else if (next_is("&&")) {
        unsupported("an intersection of classes (&&)");
      } else {
        copy(1);
      }
    }
    if (done()) unsupported("a class without its closing ]");
    copy(1);
  }

  void escape(bool in_class) {
    if (position_ + 1 >= pattern_.size()) unsupported("a backslash at the end");
    const char kind = pattern_[position_ + 1];
    if (kind == 's' || kind == 'S') return members(kWhiteSpace, kind == 'S', in_class, 2);
    if (kind == 'p' || kind == 'P') return property(kind == 'P', in_class);
    if (kind == 'x') return hexadecimal();
    if (kind == 'v') {  // vertical tab; in PCRE2 \v is a set
      out_ += R"(\x{B})";
      position_ += 2;
      return;
    }
    if (kind == 'r' || kind == 'n' || kind == 't' || kind == 'f' || is_punctuation(kind)) return copy(2);
    unsupported(text("the escape \\", kind));
  }

  void hexadecimal() {
    for (const size_t at : {position_ + 2, position_ + 3}) {
      if (at >= pattern_.size() || !std::isxdigit(static_cast<unsigned char>(pattern_[at]))) {
        unsupported("\\x without two hexadecimal digits");
      }
    }
    if (pattern_[position_ + 2] >= '8')
      unsupported("\\x80 and above (a byte in one library, a character in the other)");
    copy(4);
  }

  void property(bool negated, bool in_class) {
    const std::string_view rest = pattern_.substr(position_ + 2);
    const size_t close = rest.find('}');
    if (rest.empty() || rest[0] != '{' || close == std::string_view::npos) unsupported("\\p without {name}");
    const std::string_view name = rest.substr(1, close - 1);
    if (name.size() != 1 || kGroups.find(name[0]) == std::string_view::npos) {
      unsupported(text("the property ", name, " (known: L, M, N, P, S, Z)"));
    }
    members(text("\\p{", name, "}", added_after_unicode_14(name[0])), negated, in_class, 2 + close + 1);
  }

  // Writes a set in place of the `length` bytes of its escape.
  void members(std::string_view set, bool negated, bool in_class, size_t length) {
    if (in_class && negated) unsupported("a negated set inside a class");
    if (in_class) {
      out_ += set;
    } else {
      out_ += text(negated ? "[^" : "[", set, "]");
    }
    position_ += length;
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace asterism::data
