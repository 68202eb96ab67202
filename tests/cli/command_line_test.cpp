#include "asterism/cli/command_line.h"

#include <gtest/gtest.h>

#include <new>

#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

using testing::ProgramResult;
using testing::run_asterism;

/// A command with an option of every kind, and a group with one command.
struct Sample {
  std::string file, mode = "a";
  std::vector<std::string> sets;
  bool flag = false, quiet = false;
  int64_t count = 1;
  uint64_t seed = 0;
  double share = 0.5;
  int runs = 0;
  std::function<int()> work = [] { return kDone; };

  int run(const std::vector<std::string>& arguments) {
    Command make = {
        .name = "make",
        .summary = "Makes it",
        .example = "asterism make x",
        .options = {{.name = "FILE", .target = &file, .help = "A file", .required = true},
                    {.name = "--mode", .target = &mode, .help = "A mode", .choices = {"a", "b"}},
                    {.name = "--set", .target = &sets, .help = "A setting"},
                    {.name = "--flag", .target = &flag, .help = "A flag"},
                    {.name = "--count", .target = &count, .help = "A number", .at_least = 1.0},
                    {.name = "--seed", .target = &seed, .help = "A seed"},
                    {.name = "--share", .target = &share, .help = "A share", .at_least = 0.0, .at_most = 1.0}}};
    make.run = [this] {
      ++runs;
      quiet = process_log().quiet();
      return work();
    };
    Command group = {.name = "group", .summary = "A group"};
    group.children = {{.name = "inner", .summary = "Inside", .run = [this] { return ++runs, kDone; }}};
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int exit_code = run_command_line(arguments, {make, group});
    out = ::testing::internal::GetCapturedStdout();
    err = ::testing::internal::GetCapturedStderr();
    process_log().set_quiet(false);
    return exit_code;
  }

  std::string out, err;
};

TEST(CommandLine, FillsTheTargets) {
  Sample sample;
  EXPECT_EQ(sample.run({"make", "--set", "a=1", "x.yaml", "--mode=b", "--set", "b=2", "--flag", "--count", "7",
                        "--seed", "18446744073709551615", "--share", "0.25"}),
            kDone)
      << sample.err;
  EXPECT_EQ(sample.file, "x.yaml");
  EXPECT_EQ(sample.mode, "b");
  EXPECT_EQ(sample.sets, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_TRUE(sample.flag);
  EXPECT_EQ(sample.count, 7);
  EXPECT_EQ(sample.seed, UINT64_MAX);
  EXPECT_EQ(sample.share, 0.25);
  EXPECT_EQ(sample.runs, 1);
  EXPECT_FALSE(sample.quiet);
}

TEST(CommandLine, QuietWorksForEveryCommand) {
  Sample sample;
  EXPECT_EQ(sample.run({"make", "x", "--quiet"}), kDone);
  EXPECT_TRUE(sample.quiet);
}

TEST(CommandLine, RunsTheCommandsOfAGroup) {
  Sample sample;
  EXPECT_EQ(sample.run({"group", "inner"}), kDone) << sample.err;
  EXPECT_EQ(sample.runs, 1);
}

struct Usage {
  std::vector<std::string> arguments;
  std::vector<std::string> fragments;
};

TEST(CommandLine, WrongUsageIsNamedAndNothingRuns) {
  const std::vector<Usage> cases = {
      {{}, {"which command", "make, group", "asterism --help"}},
      {{"mke"}, {"unknown command mke", "did you mean make?", "asterism --help"}},
      {{"zzzzzzzzzzzz"}, {"unknown command zzzzzzzzzzzz", "Commands: make, group"}},
      {{"group"}, {"which command", "inner", "asterism group --help"}},
      {{"group", "iner"}, {"unknown command iner", "did you mean inner?"}},
      {{"make", "x", "--cuont", "3"}, {"unknown option --cuont", "did you mean --count?", "asterism make --help"}},
      {{"make", "--seeed=3"}, {"unknown option --seeed", "did you mean --seed?"}},
      {{"make"}, {"FILE is required", "asterism make --help"}},
      {{"make", "x", "y"}, {"y", "asterism make --help"}},
      {{"make", "x", "--mode", "c"}, {"--mode", "c"}},
      {{"make", "x", "--count", "0"}, {"--count", "at least 1", "found 0"}},
      {{"make", "x", "--count", "many"}, {"--count", "many"}},
      {{"make", "x", "--share", "1.5"}, {"--share", "from 0 to 1", "found 1.5"}},
      {{"make", "x", "--share", "nan"}, {"--share", "nan"}},
      {{"make", "x", "--seed", "-1"}, {"--seed: expected a whole number from 0 to 2^64 - 1; found -1"}},
      {{"make", "x", "--seed", "18446744073709551616"}, {"--seed", "found 18446744073709551616"}},
      {{"make", "x", "--count", "010"}, {"--count", "found 010"}},
      {{"make", "x", "--seed", "1.5"}, {"--seed", "1.5"}},
      {{"make", "x", "--count"}, {"--count"}},
      {{"make", "x", "-q"}, {"-q"}},
  };
  for (const Usage& usage : cases) {
    Sample sample;
    EXPECT_EQ(sample.run(usage.arguments), kWrongInput);
    EXPECT_EQ(sample.runs, 0);
    EXPECT_EQ(sample.out, "");
    EXPECT_EQ(sample.err.find("error: "), 0u) << sample.err;
    for (const std::string& fragment : usage.fragments) {
      EXPECT_NE(sample.err.find(fragment), std::string::npos) << "expected \"" << fragment << "\" in\n" << sample.err;
    }
  }
}

TEST(CommandLine, EveryKindOfFailureHasItsExitCode) {
  const std::vector<std::pair<std::function<int()>, int>> cases = {
      {[]() -> int { throw InputError("the text"); }, 2},
      {[]() -> int { throw RunError("the text"); }, 1},
      {[]() -> int { throw VerificationError("the text"); }, 3},
      {[]() -> int { throw std::runtime_error("the text"); }, 1},
      {[]() -> int { TORCH_CHECK(false, "the text"); }, 1},
  };
  for (const auto& [work, exit_code] : cases) {
    Sample sample;
    sample.work = work;
    EXPECT_EQ(sample.run({"make", "x"}), exit_code);
    EXPECT_EQ(sample.err.find("error: "), 0u) << sample.err;
    EXPECT_NE(sample.err.find("the text"), std::string::npos) << sample.err;
    EXPECT_EQ(std::count(sample.err.begin(), sample.err.end(), '\n'), 1) << sample.err;
  }
  Sample sample;
  sample.work = []() -> int { throw std::bad_alloc(); };
  EXPECT_EQ(sample.run({"make", "x"}), 1);
  EXPECT_NE(sample.err.find("out of memory"), std::string::npos) << sample.err;
  sample.work = []() -> int { throw 5; };
  EXPECT_EQ(sample.run({"make", "x"}), 1);
  sample.work = [] { return static_cast<int>(kInterrupted); };
  EXPECT_EQ(sample.run({"make", "x"}), 130);
}

// ---- the built executable

TEST(CommandLineProgram, HelpShowsAnExampleForEveryCommand) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"init"}, {"train"}, {"eval"}, {"generate"}, {"diff"}, {"chat", "encode"}, {"chat", "tokens"}}) {
    std::vector<std::string> arguments = words;
    arguments.push_back("--help");
    const ProgramResult result = run_asterism(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Example:"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("--quiet"), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
  }
  const ProgramResult all = run_asterism({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const char* name : {"init", "train", "eval", "generate", "diff", "chat"})
    EXPECT_NE(all.out.find(name), std::string::npos) << all.out;
}

TEST(CommandLineProgram, VersionNamesWhatItWasBuiltOf) {
  const ProgramResult result = run_asterism({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* line : {"asterism ", "libtorch ", "devices ", "cpu ", "threads "}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
  }
}

TEST(CommandLineProgram, WrongUsageIsExitCodeTwoAndOneLine) {
  const ProgramResult result = run_asterism({"inti", "--config", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.last_error_line().find("did you mean init?"), std::string::npos) << result.err;
  EXPECT_EQ(run_asterism({}).exit_code, 2);
  const ProgramResult absent = run_asterism({"init", "--config", "absent.json", "--out", "/nowhere/x"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_NE(absent.last_error_line().find("absent.json"), std::string::npos) << absent.err;
}

}  // namespace
}  // namespace asterism::cli
