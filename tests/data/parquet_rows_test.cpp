#include "asterism/data/parquet_rows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;
using testing::error_of;
using testing::golden;

std::vector<Json> read_all(const std::filesystem::path& file) {
  std::vector<Json> rows;
  const auto source = open_rows(file);
  while (const auto row = source->next()) rows.push_back(Json::parse(row->text));
  return rows;
}

TEST(ParquetRows, WithoutTheReaderTheErrorSaysWhatToInstall) {
  const std::string message =
      error_of<InputError>([] { open_parquet(golden("parquet/chats.parquet"), "libasterism_not_there.so"); });
  for (const char* part : {"chats.parquet", "Apache Arrow", "make setup", "pyarrow", "libasterism_not_there.so"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(ParquetRows, AnotherLibraryIsNotTakenForTheReader) {
  const std::string message = error_of<InputError>([] { open_parquet(golden("parquet/chats.parquet"), "libz.so.1"); });
  EXPECT_NE(message.find("another version"), std::string::npos) << message;
}

/// These need the library that is built where Arrow was found.
class ParquetReader : public ::testing::Test {
 protected:
  void SetUp() override {
    if (parquet_reader_version().empty()) GTEST_SKIP() << "built without Apache Arrow";
  }
};

TEST_F(ParquetReader, ConversationsAreThoseOfJsonLines) {
  const auto file = golden("parquet/chats.parquet");
  const auto rows = read_all(file);
  ASSERT_EQ(rows.size(), 300u);
  EXPECT_EQ(rows[0].dump(), R"({"messages":[{"role":"user","content":"question 0 é\n\"x\""},)"
                            R"({"role":"assistant","content":"answer 0"}],"source":"made"})");
  EXPECT_EQ(rows[1].dump(), R"({"messages":[{"role":"user","content":"weather?"},{"role":"assistant","tool_calls":)"
                            R"([{"id":"1","type":"function","function":{"name":"get","arguments":)"
                            R"("{\"city\": \"Bern\"}"}}]}],"source":"made"})");
  EXPECT_EQ(rows[299].at("messages").at(1).at("reasoning_content"), "because");
  EXPECT_EQ(rows[299].at("messages").at(1).at("content"), "answer 299");
  const auto source = open_rows(file);
  EXPECT_EQ(source->format(), "Parquet");
  EXPECT_FALSE(source->seekable());
  source->next();
  EXPECT_EQ(source->next()->origin, file.string() + " (row 2)");
}

TEST_F(ParquetReader, EveryTypeBecomesItsJson) {
  const auto source = open_rows(golden("parquet/types.parquet"));
  EXPECT_EQ(source->next()->text,
            R"({"flag": true, "int8": -1, "int64": 1, "uint64": 1, "float32": 0.1, "float64": 1.0, "string": "a", )"
            R"("large": "b", "binary": "c", "category": "d", "date": "2026-04-24", "decimal": "1.50", )"
            R"("list": [1, 2], "fixed": [1, 2], "map": {"k": 1, "l": null}, "struct": {"x": 1}})");
  EXPECT_EQ(source->next()->text,
            R"({"flag": false, "int8": -128, "int64": -9223372036854775808, "uint64": 18446744073709551615, )"
            R"("float32": 1e+20, "float64": 1e-07, "string": "你\"\\\u000a\u0001", "large": "", "binary": "", )"
            R"("category": "e", "date": "1970-01-01", "decimal": "-0.01", "list": [null], "fixed": [3, 4], "map": {}, )"
            R"("struct": {"y": []}})");
  EXPECT_EQ(source->next()->text, "{}");
  EXPECT_FALSE(source->next());
}

TEST_F(ParquetReader, NoRecordsAreNoRows) {
  EXPECT_TRUE(read_all(golden("parquet/empty.parquet")).empty());
}

TEST_F(ParquetReader, DamagedFilesAreNamed) {
  const testing::TemporaryFolder folder;
  const std::string bytes = read_text(golden("parquet/chats.parquet"));
  std::string broken = bytes;
  for (size_t i = 100; i < 400; ++i) broken[i] = static_cast<char>(broken[i] ^ 0x5A);
  for (const std::string& content : {bytes.substr(0, bytes.size() / 2), std::string("PAR1"), broken}) {
    const std::string message = error_of<InputError>([&] { read_all(folder.write("a.parquet", content)); });
    EXPECT_NE(message.find("a.parquet"), std::string::npos) << message;
    EXPECT_NE(message.find("cannot be read"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace asterism::data
