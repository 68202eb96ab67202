#include "asterism/data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdint>
#include <new>

#include "asterism/core/error.h"
#include "asterism/data/unicode_additions.h"

namespace asterism::data {

namespace {

struct ContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// Patterns and texts are as long as the file that holds them; the default limits are meant for hostile patterns and
// would stop the interpreter on long runs of white space.
const pcre2_match_context* unlimited_context() {
  static const std::unique_ptr<pcre2_match_context, ContextFree> context = [] {
    std::unique_ptr<pcre2_match_context, ContextFree> made(pcre2_match_context_create(nullptr));
    if (!made) throw std::bad_alloc();
    pcre2_set_match_limit(made.get(), UINT32_MAX);
    pcre2_set_depth_limit(made.get(), UINT32_MAX);
    return made;
  }();
  return context.get();
}

}  // namespace

void RegexScratch::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}

RegexScratch::RegexScratch() : match_(pcre2_match_data_create(1, nullptr)) {
  if (!match_) throw std::bad_alloc();
}

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Regex Regex::compile(std::string_view pattern) {
  return build(pattern, translate_pattern(pattern));
}

Regex Regex::literal(std::string_view wanted) {
  std::string quoted;
  for (const char c : wanted) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c));
    if (!plain) quoted.push_back('\\');  // PCRE2 takes a backslash before any ASCII non-alphanumeric as quoting
    quoted.push_back(c);
  }
  return build(wanted, quoted);
}

Regex Regex::word_character() {
  // Alphabetic written out: letters, letter numbers and the circled and squared Latin letters among the symbols. The
  // other alphabetic characters are marks.
  const std::string alphabetic =
      text("\\p{L}", added_after_unicode_14('L'),
           R"(\p{Nl}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})");
  const std::string marks = text("\\p{M}", added_after_unicode_14('M'));
  return build("word character", text("[", alphabetic, marks, R"(\p{Nd}\p{Pc}\x{200C}\x{200D}])"));
}

Regex Regex::build(std::string_view pattern, const std::string& translated) {
  const std::unique_ptr<pcre2_compile_context, ContextFree> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // `.` stops at line feed only, whatever the library's default

  int error = 0;
  PCRE2_SIZE error_offset = 0;
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_offset,
                                  context.get()));
  if (!regex.code_) {
    input_error("split pattern \"", pattern, "\" is not valid: ", message_of(error), " (at byte ", error_offset,
                " of \"", translated, "\")");
  }
  uint32_t may_match_nothing = 0;
  pcre2_pattern_info(regex.code_.get(), PCRE2_INFO_MATCHEMPTY, &may_match_nothing);
  if (may_match_nothing != 0) {
    input_error("split pattern \"", pattern, "\" can match the empty text; every match must be at least one character");
  }
  // Without a JIT the call fails and pcre2_match interprets: slower, the same matches.
  pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

std::optional<ByteRange> Regex::find(std::string_view subject, size_t from, RegexScratch& scratch) const {
  const auto search = [&](uint32_t options) {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), from,
                       PCRE2_NO_UTF_CHECK | options, scratch.match_.get(),
                       const_cast<pcre2_match_context*>(unlimited_context()));
  };
  int result = search(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = search(PCRE2_NO_JIT);  // the interpreter keeps its stack on the heap
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    run_error("split pattern \"", pattern_, "\" failed at byte ", from, " of a text of ", subject.size(),
              " bytes: ", message_of(result));
  }
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(scratch.match_.get());
  return ByteRange{match[0], match[1]};
}

}  // namespace asterism::data
