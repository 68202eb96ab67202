// Token ids of many texts, for tools/compare-tokenizer.
//
//   dump_tokens ids TOKENIZER_JSON <texts >ids
//   dump_tokens round-trip TOKENIZER_JSON <texts >ids     fails when decoding does not give a text back
//   dump_tokens corpus TOKENIZER_JSON >texts              the texts of tests/data/tokenizer_corpus.h
//
// Input: any number of texts, each as its length in bytes (32 bits) and the bytes. Output, for each: the number of
// tokens (32 bits) and their ids (32 bits each); for a text that is not UTF-8, 2^32 - 1 and the offset of the first bad
// byte. Numbers as this machine stores them. The last line on stderr says how long it took in seconds of processor
// time: loading, encoding.

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/tokenizer.h"
#include "asterism/data/utf8.h"
#include "tests/data/tokenizer_corpus.h"

namespace {

using namespace asterism;

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

bool read_number(uint32_t& value) {
  return std::fread(&value, sizeof(value), 1, stdin) == 1;
}

void write_number(uint32_t value) {
  std::fwrite(&value, sizeof(value), 1, stdout);
}

void dump(const char* path, bool round_trip) {
  const double start = processor_seconds();
  const data::Tokenizer tokenizer = data::Tokenizer::load(path);
  const double loaded = processor_seconds();
  double encoding = 0;
  std::string text;
  for (uint32_t length = 0; read_number(length);) {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) input_error("dump_tokens: the input ends inside a text");
    if (const auto bad = data::find_invalid_utf8(text)) {
      write_number(~uint32_t{0});
      write_number(static_cast<uint32_t>(*bad));
      continue;
    }
    const double before = processor_seconds();
    const std::vector<int64_t> ids = tokenizer.encode(text);
    encoding += processor_seconds() - before;
    if (round_trip && tokenizer.decode(ids) != text)
      run_error("dump_tokens: decoding does not give the text back: ", text);
    write_number(static_cast<uint32_t>(ids.size()));
    for (const int64_t id : ids) write_number(static_cast<uint32_t>(id));
  }
  std::cerr << loaded - start << " " << encoding << "\n";
}

void write_corpus(const char* path) {
  for (const std::string& text : data::tokenizer_corpus(data::Tokenizer::load(path))) {
    write_number(static_cast<uint32_t>(text.size()));
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view action = argc == 3 ? argv[1] : "";
  if (action != "ids" && action != "round-trip" && action != "corpus") {
    std::cerr << "usage: dump_tokens ids|round-trip|corpus TOKENIZER_JSON\n";
    return 2;
  }
  try {
    action == "corpus" ? write_corpus(argv[2]) : dump(argv[2], action == "round-trip");
  } catch (const std::exception& error) {
    std::cerr << user_message(error) << "\n";
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
