#include "asterism/cli/row_answers.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "asterism/data/chat_error.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

nlohmann::ordered_json key_a(const data::JsonValue& row) {
  const data::JsonValue& value = row.get("a");
  if (value.is_null()) throw data::ChatError("no_a", 3, "there is no a");
  if (!value.is_int64()) throw InputError("a is wrong");
  return {{"a", value.as_int64()}};
}

TEST(RowAnswers, WritesALineForEveryRowThatIsNotEmpty) {
  const TemporaryFolder folder;
  const auto file = folder.write("rows.jsonl", "\xEF\xBB\xBF{\"a\": 1}\r\n \n{}\nnothing\n{\"a\": \"x\"}\n{\"a\": 2}");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(answer_rows(file, key_a), 0);
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(
      out.starts_with("{\"a\":1}\n"
                      "{\"error\":{\"category\":\"no_a\",\"message\":\"message 3: there is no a\","
                      "\"message_index\":3}}\n"
                      "{\"error\":{\"category\":\"invalid_json\""))
      << out;
  EXPECT_TRUE(
      out.ends_with("{\"error\":{\"category\":\"invalid_row\",\"message\":\"a is wrong\",\"message_index\":null}}\n"
                    "{\"a\":2}\n"))
      << out;
}

TEST(RowAnswers, NamesAFileThatIsNotThere) {
  const std::string error = error_of<InputError>([] { answer_rows("absent.jsonl", key_a); });
  EXPECT_EQ(error, "absent.jsonl: cannot open");
}

}  // namespace
}  // namespace asterism::cli
