#include "asterism/data/sample_reader.h"

#include <gtest/gtest.h>

#include <thread>

#include "asterism/core/error.h"
#include "asterism/data/index_cache.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class SampleReading : public ::testing::Test {
 protected:
  SampleReading() { options_.rows.tokenize = test::tokenize_bytes; }

  void index(const std::string& content, const std::string& name = "a.jsonl") {
    data_ = prepare_data({{folder_.write(name, content)}}, options_, {});
  }
  SampleReader reader() const { return SampleReader(data_.index, options_.rows, options_.fit); }
  Sample read(size_t number) const { return reader().read(data_.index->entries()[number]); }

  /// The error of the first sample once the file holds `content`, with the time it had before.
  std::string error_with(const std::string& content) {
    const auto path = data_.index->files()[0].path;
    const auto time = fs::last_write_time(path);
    folder_.write(path.filename(), content);
    fs::last_write_time(path, time);
    return error_of<RunError>([&] { read(0); });
  }

  test::TemporaryFolder folder_;
  PreparationOptions options_;
  PreparedData data_;
};

TEST_F(SampleReading, GivesTheSamplesOfLinesAndLists) {
  index("{\"text\": \"one\"}\r\n\n{\"text\": \"three\"}");
  EXPECT_EQ(read(1).ids, (std::vector<int64_t>{'t', 'h', 'r', 'e', 'e'}));
  EXPECT_EQ(read(0).ids, (std::vector<int64_t>{'o', 'n', 'e'}));
  index("[{\"text\": \"one\"}, {\"text\": \"two\"}]", "a.json");
  EXPECT_EQ(read(1).ids, (std::vector<int64_t>{'t', 'w', 'o'}));
}

TEST_F(SampleReading, GivesThePartsOfASplitConversation) {
  options_.rows.loss.history = History::Split;
  index(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, )"
        R"({"role": "user", "content": "r"}, {"role": "assistant", "content": "bb"}]})");
  ASSERT_EQ(data_.index->entries().size(), 2u);
  int encoded = 0;
  options_.rows.tokenize = [&](std::string_view text, std::span<const ByteRange>, std::vector<int64_t>& ids,
                               std::vector<size_t>& ends) {
    ++encoded;
    test::tokenize_bytes(text, {}, ids, ends);
  };
  const Sample first = read(0), second = read(1);
  EXPECT_EQ(encoded, 2);  // the other part is not encoded as well
  EXPECT_LT(first.size(), second.size());
  EXPECT_EQ(first.trained_tokens() + 1, second.trained_tokens());
}

TEST_F(SampleReading, TruncatesAsThePreparationDid) {
  options_.fit = {.sequence_length = 4, .overlong = Overlong::Truncate};
  index("{\"text\": \"abcdefg\"}\n");
  EXPECT_EQ(read(0).ids, (std::vector<int64_t>{'a', 'b', 'c', 'd'}));
}

TEST_F(SampleReading, AnyNumberOfThreadsMayRead) {
  index(numbered_rows(0, 200));
  const SampleReader shared = reader();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t number = (i * 7 + t * 50) % 200;
        wrong[t] += shared.read(data_.index->entries()[number]).ids.front() != static_cast<int64_t>(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(SampleReading, MoreFilesThanMayBeOpen) {
  for (int i = 100; i < 250; ++i) folder_.write(text("f", i, ".jsonl"), numbered_rows(i, 2));
  data_ = prepare_data({{folder_.path()}}, options_, {});
  const SampleReader shared = reader();
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 300; ++i) {
      EXPECT_EQ(shared.read(data_.index->entries()[i]).ids.front(), static_cast<int64_t>(100 + i / 2 + i % 2));
    }
  }
}

TEST_F(SampleReading, AChangedFileIsAnError) {
  const std::string row = "{\"text\": \"abc\"}\n";
  index(row);
  EXPECT_NE(error_with(row + row).find("had 16 bytes and has 32"), std::string::npos);
  folder_.write("a.jsonl", row);
  fs::last_write_time(folder_ / "a.jsonl", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_NE(error_of<RunError>([&] { read(0); }).find("written again"), std::string::npos);
}

TEST_F(SampleReading, AChangedRowIsAnErrorEvenIfSizeAndTimeAreTheSame) {
  index("{\"text\": \"abc\"}\n");
  EXPECT_NE(error_with("{\"text\": \"abd\"}\n").find("its tokens or which of them are trained differ"),
            std::string::npos);
  EXPECT_NE(error_with("{\"text\": \"ab\"} \n").find("it has 2 tokens instead of 3"), std::string::npos);
  const std::string broken = error_with("{\"text\": \"abc }\n");
  EXPECT_NE(broken.find("invalid_json"), std::string::npos);
  EXPECT_NE(broken.find("a.jsonl: the row at byte 0"), std::string::npos) << broken;
  EXPECT_NE(error_with("{\"text\": \"a\"}  \n").find("nothing to train"), std::string::npos);
}

}  // namespace
}  // namespace asterism::data
