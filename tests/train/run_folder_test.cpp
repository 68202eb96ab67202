#include "asterism/train/run_folder.h"

#include <gtest/gtest.h>

#include <limits>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::train {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

constexpr const char* kThreeSteps =
    "{\"step\":1,\"loss\":3.0}\n"
    "{\"step\":2,\"loss\":2.0}\n"
    "{\"step\":3,\"loss\":1.0}\n";

TEST(RunFolder, CreatesItselfAndKeepsWhatIsThere) {
  const TemporaryFolder temporary;
  const RunFolder run(temporary / "runs" / "demo");
  run.create();
  run.write_recipe("name: demo\n");
  run.create();
  EXPECT_EQ(read_text(temporary / "runs" / "demo" / "recipe.yaml"), "name: demo\n");
  EXPECT_TRUE(std::filesystem::is_directory(temporary / "runs" / "demo" / "checkpoints"));
}

TEST(RunFolder, TidyRemovesWhatKilledWritesLeft) {
  const TemporaryFolder temporary;
  std::filesystem::create_directory(temporary_path(temporary / "adapter"));
  temporary.write("report.json.tmp-8-9", "{");
  temporary.write("report.json", "{}");
  RunFolder(temporary.path()).tidy();
  EXPECT_EQ(temporary.entries(), std::set<std::string>{"report.json"});
}

TEST(RunFolder, NamesAFolderThatCannotBeCreated) {
  const TemporaryFolder temporary;
  temporary.write("runs", "a file in the way");
  const std::string error = error_of<InputError>([&] { RunFolder(temporary / "runs" / "demo").create(); });
  EXPECT_NE(error.find("runs/demo"), std::string::npos) << error;
}

TEST(RunFolder, ReplacesTheReport) {
  const TemporaryFolder temporary;
  const RunFolder run(temporary.path());
  run.write_report({{"seconds", 1.5}});
  run.write_report({{"seconds", 2.5}, {"version", "x"}});
  EXPECT_EQ(Json::parse(read_text(temporary / "report.json")), Json({{"seconds", 2.5}, {"version", "x"}}));
  EXPECT_EQ(temporary.entries(), std::set<std::string>{"report.json"});
}

TEST(MetricsFile, AppendsALinePerStep) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsFile metrics(path, 0);
  metrics.append({{"step", 1}, {"loss", 3.5}});
  EXPECT_EQ(read_text(path), "{\"step\":1,\"loss\":3.5}\n");
  metrics.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(metrics.bytes(), read_text(path).size());
  EXPECT_EQ(read_text(path), "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":null}\n");
}

TEST(MetricsFile, RefusesARowWithoutAStep) {
  const TemporaryFolder folder;
  MetricsFile metrics(folder / "metrics.jsonl", 0);
  EXPECT_THROW(metrics.append({{"loss", 3.5}}), std::logic_error);
  EXPECT_THROW(metrics.append({{"step", 1.5}}), std::logic_error);
}

TEST(MetricsFile, ContinuesAfterTheResumedStep) {
  const TemporaryFolder folder;
  const auto path = folder.write("metrics.jsonl", kThreeSteps);
  MetricsFile metrics(path, 2);
  EXPECT_EQ(metrics.bytes(), read_text(path).size());
  metrics.append({{"step", 3}, {"loss", 1.5}});
  EXPECT_EQ(read_text(path), "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":2.0}\n{\"step\":3,\"loss\":1.5}\n");
}

TEST(MetricsFile, ARunThatStartsAnewHasNoOldLines) {
  const TemporaryFolder folder;
  const auto path = folder.write("metrics.jsonl", kThreeSteps);
  const MetricsFile metrics(path, 0);
  EXPECT_EQ(read_text(path), "");
}

TEST(MetricsFile, RemovesALineThatACrashHasCutOff) {
  const TemporaryFolder folder;
  const auto path = folder.write("metrics.jsonl", std::string(kThreeSteps) + "{\"step\":4,\"lo");
  MetricsFile(path, 4).append({{"step", 5}});
  EXPECT_EQ(read_text(path), std::string(kThreeSteps) + "{\"step\":5}\n");
}

TEST(MetricsFile, ClosesALastLineThatOnlyLacksItsEnd) {
  const TemporaryFolder folder;
  const auto path = folder.write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}");
  MetricsFile(path, 2).append({{"step", 3}});
  EXPECT_EQ(read_text(path), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST(MetricsFile, ABrokenLineDoesNotCostTheLinesBehindIt) {
  const TemporaryFolder folder;
  const std::string zeros(5, '\0');
  const auto path = folder.write("metrics.jsonl", "{\"step\":1}\n" + zeros + "\n[2]\n{\"step\":\"2\"}\n{\"step\":3}\n");
  const MetricsFile metrics(path, 3);
  EXPECT_EQ(read_text(path), "{\"step\":1}\n{\"step\":3}\n");
}

TEST(MetricsFile, CutAtEveryByteItKeepsExactlyTheWholeLines) {
  const std::string whole = kThreeSteps;
  for (size_t size = 0; size <= whole.size(); ++size) {
    const TemporaryFolder folder;
    const auto path = folder.write("metrics.jsonl", whole.substr(0, size));
    ::testing::internal::CaptureStderr();
    const MetricsFile metrics(path, 3);
    const std::string warnings = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(warnings.empty(), size == 0 || whole[size - 1] == '}' || whole[size - 1] == '\n') << warnings;
    // A line without its newline is whole as soon as its brace is there.
    const size_t last_brace = size == 0 ? std::string::npos : whole.rfind('}', size - 1);
    const std::string expected = last_brace == std::string::npos ? "" : whole.substr(0, last_brace + 1) + "\n";
    ASSERT_EQ(read_text(path), expected) << "cut after " << size << " bytes";
  }
}

TEST(MetricsFile, ReportsAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  const std::string error = error_of<RunError>([&] { MetricsFile(folder / "absent" / "metrics.jsonl", 0); });
  EXPECT_NE(error.find("absent/metrics.jsonl"), std::string::npos) << error;
}

}  // namespace
}  // namespace asterism::train
