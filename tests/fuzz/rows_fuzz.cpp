#include <gtest/gtest.h>

#include "asterism/data/python_json.h"
#include "asterism/data/rows.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/data_files.h"

namespace asterism::fuzz {
namespace {

using namespace asterism::data;

RowOptions byte_tokens() {
  RowOptions options;
  options.tokenize = test::tokenize_bytes;
  options.vocab_size = 300;
  return options;
}

std::string random_data_row(Dice& dice) {
  switch (dice.below(4)) {
    case 0:
      return R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]})";
    case 1:
      return to_json(JsonValue::object({{"text", test::hostile_text(dice, 10)}}));
    case 2:
      return to_json(JsonValue::object({{"conversations", test::hostile_json(dice, 3)}}));
    default:
      return to_json(JsonValue::object({{"messages", test::hostile_conversation(dice).messages}}));
  }
}

/// Reads everything that can be read; rows that are wrong do not end a file.
void read_file(const std::filesystem::path& path, size_t size) {
  const RowOptions options = byte_tokens();
  const std::unique_ptr<RowSource> source = open_rows(path);
  size_t rows = 0;
  for (auto row = source->next(); row; row = source->next()) {
    ASSERT_LE(++rows, size) << "more rows than bytes";
    try {
      for (const Sample& sample : samples_of_row(*row, options)) {
        ASSERT_EQ(sample.ids.size(), sample.weights.size());
      }
    } catch (const InputError&) {
    }
  }
}

TEST(Fuzz, Rows) {
  const test::TemporaryFolder folder;
  const std::vector<std::string> others = {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "\r\n\r\n", "[{}, {}]"};
  for_each_input("rows", 1500, [&](Dice& dice) {
    const bool is_list = dice.chance(0.3);
    std::string content = is_list ? "[" : "";
    for (uint64_t i = 0; i <= dice.below(4); ++i) {
      if (i > 0) content += is_list ? ",\n" : "\n";
      content += random_data_row(dice);
    }
    if (is_list) content += "]";
    content = mutated(dice, std::move(content), others);
    read_file(folder.write(is_list ? "rows.json" : "rows.jsonl", content), content.size());
  });
}

TEST(Fuzz, FilesOfAMegabyteTakeLinearTime) {
  const test::TemporaryFolder folder;
  for (const std::string unit : {"[", "{", "\"", "\\", "\n", "{}\n", "\xff", "[{},", "{\"text\": \"", " "}) {
    std::string content = "[";
    while (content.size() < 1'000'000) content += unit;
    for (const char* name : {"rows.json", "rows.jsonl"}) {
      try {
        read_file(folder.write(name, content), content.size());
      } catch (const InputError&) {
      }
    }
  }
}

}  // namespace
}  // namespace asterism::fuzz
