#include "asterism/data/text_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::data {
namespace {

using namespace std::string_literals;
using Strings = std::vector<std::string>;

/// A text as a file that gives `piece` bytes at a time.
class TextStream final : public ByteStream {
 public:
  TextStream(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  size_t read(char* to, size_t size) override {
    const size_t count = std::min({size, piece_, text_.size() - std::min(at_, text_.size())});
    text_.copy(to, count, std::min(at_, text_.size()));
    at_ += count;
    most_asked_ = std::max(most_asked_, size);
    return count;
  }
  bool seekable() const override { return true; }
  void seek(uint64_t offset) override { at_ = offset; }

 private:
  std::string text_;
  size_t piece_, at_ = 0, most_asked_ = 0;
};

TextRows rows_of(const std::string& text, bool named_list = false, size_t piece = 1 << 20,
                 size_t max_row_bytes = kMaxRowBytes) {
  return {"f", std::make_unique<TextStream>(text, piece), Container::Plain, named_list, max_row_bytes};
}

struct Row {
  std::string text, origin;
  bool cut_off, too_long;
  uint64_t offset;
  int64_t number;

  explicit Row(const RawRow& row)
      : text(row.text),
        origin(row.origin),
        cut_off(row.cut_off),
        too_long(row.too_long),
        offset(row.offset),
        number(row.number) {}
  bool operator==(const Row&) const = default;
};

std::vector<Row> read_all(TextRows source) {
  std::vector<Row> rows;
  while (const auto row = source.next()) rows.emplace_back(*row);
  EXPECT_FALSE(source.next());
  return rows;
}

Strings texts(const std::vector<Row>& rows) {
  Strings result;
  for (const Row& row : rows) result.push_back(row.text);
  return result;
}

Strings origins(const std::vector<Row>& rows) {
  Strings result;
  for (const Row& row : rows) result.push_back(row.origin);
  return result;
}

TEST(TextRows, LinesSurviveByteOrderMarkCrLfAndEmptyLines) {
  const auto rows = read_all(rows_of("\xEF\xBB\xBF{1}\r\n\r\n  \n{2}\n\n {3} \r\n"));
  EXPECT_EQ(texts(rows), (Strings{"{1}", "{2}", "{3}"}));
  EXPECT_EQ(origins(rows), (Strings{"f:1", "f:4", "f:6"}));
  EXPECT_FALSE(rows.back().cut_off);
  EXPECT_EQ(origins(read_all(rows_of("\n\n{1}\n"))), (Strings{"f:3"}));
}

TEST(TextRows, OnlyLineFeedsEndLines) {
  const std::string line =
      "{\"text\": \"a\xE2\x80\xA8"
      "b\xC2\x85"
      "c\x0B\x0C\"}";  // U+2028, U+0085: str.splitlines() cuts here
  EXPECT_EQ(texts(read_all(rows_of(line + "\n" + line + "\n"))), (Strings{line, line}));
}

TEST(TextRows, LastLineWithoutNewlineIsARow) {
  const auto rows = read_all(rows_of("{1}\n{2"));
  EXPECT_EQ(texts(rows), (Strings{"{1}", "{2"}));
  EXPECT_FALSE(rows[0].cut_off);
  EXPECT_TRUE(rows[1].cut_off);
}

TEST(TextRows, NothingIsNoRow) {
  for (const char* text : {"", " ", "\n\n", "\xEF\xBB\xBF", "\r\n"}) EXPECT_TRUE(read_all(rows_of(text)).empty());
  for (const char* text : {"[]", " [ ] \n", "\xEF\xBB\xBF[]"}) EXPECT_TRUE(read_all(rows_of(text)).empty()) << text;
}

TEST(TextRows, NulBytesStayInTheirRows) {
  EXPECT_EQ(texts(read_all(rows_of("{1}\n\0\0\0\0"s))), (Strings{"{1}", "\0\0\0\0"s}));
  EXPECT_EQ(texts(read_all(rows_of("\0\0\0\0"s))), (Strings{"\0\0\0\0"s}));
}

TEST(TextRows, ListsAreSplitAtTheirOwnCommas) {
  const auto rows = read_all(rows_of("\xEF\xBB\xBF\n[\n {\"a\": \"],[\\\"\\\\\", \"b\": [1, {}]},\n\n {} , 3]\n"));
  EXPECT_EQ(texts(rows), (Strings{"{\"a\": \"],[\\\"\\\\\", \"b\": [1, {}]}", "{}", "3"}));
  EXPECT_EQ(origins(rows), (Strings{"f:3 (row 1)", "f:5 (row 2)", "f:5 (row 3)"}));
}

TEST(TextRows, BrokenListsKeepTheirBadRows) {
  EXPECT_EQ(texts(read_all(rows_of("[1,]", true))), (Strings{"1", ""}));
  EXPECT_EQ(texts(read_all(rows_of("[,1]", true))), (Strings{"", "1"}));
  const auto cut = read_all(rows_of("[1, {\"a\": [2", true));
  EXPECT_EQ(texts(cut), (Strings{"1", "{\"a\": [2"}));
  EXPECT_TRUE(cut.back().cut_off);
  EXPECT_TRUE(read_all(rows_of("[1,", true)).back().cut_off);
  EXPECT_TRUE(read_all(rows_of("[", true)).back().cut_off);
  const std::string message = testing::error_of<InputError>([] { read_all(rows_of("[1]\n [2]", true)); });
  EXPECT_EQ(message, "f:2: text follows the end of the list of rows");
}

TEST(TextRows, ContentDecidesBetweenLinesAndLists) {
  EXPECT_EQ(rows_of("{}\n").format(), "JSON Lines");
  EXPECT_EQ(rows_of("{}\n", true).format(), "JSON Lines");
  EXPECT_EQ(rows_of("[{}]").format(), "a JSON list");
  EXPECT_EQ(rows_of("[\n\n  {\n").format(), "a JSON list");
  EXPECT_EQ(rows_of("[ ]").format(), "a JSON list");
  EXPECT_EQ(rows_of("[1, 2]\n{}\n").format(), "JSON Lines");  // a bad row does not turn the file into a list
  EXPECT_EQ(rows_of("[1, 2]", true).format(), "a JSON list");
  EXPECT_EQ(TextRows("f", std::make_unique<TextStream>("{}", 1), Container::Zstd, false).format(),
            "JSON Lines (Zstandard)");
}

TEST(TextRows, OtherEncodingsAreNamed) {
  for (const std::string& text : {"\xFF\xFE{\0}\0"s, "\xFE\xFF\0{\0}"s, "{\0}\0"s, "\0{\0}"s, "\xFF\xFE\0\0{\0\0\0"s}) {
    const std::string message = testing::error_of<InputError>([&] { rows_of(text); });
    EXPECT_NE(message.find("iconv"), std::string::npos) << message;
  }
}

TEST(TextRows, OneObjectOverSeveralLinesIsNoDataSet) {
  const std::string message = testing::error_of<InputError>([] { rows_of("{\n  \"messages\": []\n}\n", true); });
  EXPECT_NE(message.find("row per line"), std::string::npos) << message;
  EXPECT_EQ(texts(read_all(rows_of("{"))), (Strings{"{"}));
}

std::string random_text(uint32_t seed, bool list) {
  std::string text = list ? "[" : "";
  const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 16; };
  const int rows = 1 + static_cast<int>(next() % 40);
  for (int i = 0; i < rows; ++i) {
    if (list && i > 0) text += next() % 2 ? "," : " ,\n ";
    text += "{\"k\": \"" + std::string(next() % 300, 'x') + "],\\\"{\\\\\", \"l\": [" + std::to_string(i) + "]}";
    if (!list) text += next() % 4 ? "\n" : " \r\n\n";
  }
  return text + (list ? " ]\n" : "");
}

TEST(TextRows, RowsDoNotDependOnPieces) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const bool list : {false, true}) {
      const std::string text = random_text(seed, list);
      const auto expected = read_all(rows_of(text));
      EXPECT_EQ(expected.size(), static_cast<size_t>(std::count(text.begin(), text.end(), 'k')));
      for (const size_t piece : {1, 2, 7, 100}) EXPECT_TRUE(read_all(rows_of(text, false, piece)) == expected);
    }
  }
}

TEST(TextRows, EveryRowIsFoundAgain) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const bool list : {false, true}) {
      const std::string text = random_text(seed, list);
      const auto expected = read_all(rows_of(text));
      TextRows source = rows_of(text, false, 50);
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t which = i * 7 % expected.size();
        const Row again(source.at(expected[which].offset, expected[which].number));
        EXPECT_EQ(again.text, expected[which].text);
        EXPECT_EQ(again.number, expected[which].number);
        if (!list) {
          EXPECT_EQ(again.origin, expected[which].origin);
        }
        const auto behind = source.next();
        ASSERT_EQ(behind.has_value(), which + 1 < expected.size());
        if (behind) {
          EXPECT_EQ(behind->text, expected[which + 1].text);
          EXPECT_EQ(behind->offset, expected[which + 1].offset);
          EXPECT_EQ(behind->number, expected[which + 1].number);
        }
      }
    }
  }
}

TEST(TextRows, ARowThatIsGoneIsAnError) {
  TextRows lines = rows_of("{1}\n{2}\n");
  EXPECT_THROW(lines.at(8, 3), RunError);
  EXPECT_THROW(lines.at(100, 3), RunError);
  EXPECT_EQ(lines.at(4, 2).text, "{2}");
  EXPECT_EQ(rows_of("[{1}, {2}]").at(6, 2).origin, "f (row 2)");
}

TEST(TextRows, ARowThatIsTooLongIsNotHeld) {
  for (const size_t piece : {7, 1 << 20}) {
    const std::string long_text(100000, 'x');
    const auto lines = read_all(rows_of("{1}\n" + long_text + "\n{2}\n" + long_text, false, piece, 5000));
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0].text, "{1}");
    EXPECT_TRUE(lines[1].too_long);
    EXPECT_EQ(lines[1].text, long_text.substr(0, 4096));
    EXPECT_EQ(lines[2], Row({.text = "{2}", .origin = "f:3", .offset = 4 + 100001, .number = 3}));
    EXPECT_TRUE(lines[3].too_long && lines[3].cut_off);
    const std::string element = "{\"a\":\n\"" + long_text + "]\"}";
    const auto list = read_all(rows_of("[{},\n" + element + ",\n{}]", false, piece, 5000));
    ASSERT_EQ(list.size(), 3u);
    EXPECT_TRUE(list[1].too_long);
    EXPECT_EQ(list[1].text, element.substr(0, 4096));
    EXPECT_EQ(list[2].origin, "f:4 (row 3)");
    EXPECT_FALSE(list[2].too_long);
  }
}

TEST(TextRows, ARowOfTheGreatestLengthIsHeld) {
  const auto rows = read_all(rows_of(std::string(5000, 'x') + "\n" + std::string(5001, 'y') + "\n", false, 64, 5000));
  EXPECT_FALSE(rows[0].too_long);
  EXPECT_TRUE(rows[1].too_long);
}

}  // namespace
}  // namespace asterism::data
