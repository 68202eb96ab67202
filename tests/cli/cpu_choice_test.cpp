#include "asterism/cli/cpu_choice.h"

#include <gtest/gtest.h>

#include "asterism/cli/version.h"
#include "asterism/core/error.h"
#include "asterism/ops/cpu/level.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

using ops::cpu::Level;

class CpuChoice : public ::testing::Test {
 protected:
  ~CpuChoice() override { ops::cpu::choose_level(before_); }

 private:
  Level before_ = ops::cpu::level();
};

std::string choice_refusal(const char* name) {
  try {
    choose_cpu_level(name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CpuChoice, TakesEveryLevelOfThisCpuAndTheHighestByDefault) {
  for (const Level level : {Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16}) {
    if (level > ops::cpu::highest_level()) continue;
    choose_cpu_level(std::string(ops::cpu::level_name(level)).c_str());
    EXPECT_EQ(ops::cpu::level(), level);
    EXPECT_NE(version_text().find("kernels " + std::string(ops::cpu::level_name(level)) + "\n"), std::string::npos);
    for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
      choose_cpu_level(unset);
      EXPECT_EQ(ops::cpu::level(), ops::cpu::highest_level());
      choose_cpu_level(std::string(ops::cpu::level_name(level)).c_str());
    }
  }
}

TEST_F(CpuChoice, RefusesWhatItDoesNotKnowOrCannotRun) {
  EXPECT_NE(choice_refusal("sse4").find("found 'sse4'"), std::string::npos) << choice_refusal("sse4");
  EXPECT_NE(choice_refusal("sse4").find(ops::cpu::level_name(ops::cpu::highest_level())), std::string::npos);
  if (ops::cpu::highest_level() < Level::kAvx512Bf16) {
    EXPECT_NE(choice_refusal("avx512_bf16").find("lacks the instructions"), std::string::npos)
        << choice_refusal("avx512_bf16");
  }
  EXPECT_EQ(ops::cpu::level(), ops::cpu::highest_level());
}

TEST_F(CpuChoice, TheProgramReadsTheVariable) {
  ASSERT_EQ(::setenv("ASTERISM_CPU", "portable", 1), 0);
  const testing::ProgramResult chosen = testing::run_asterism({"--version"});
  ASSERT_EQ(::setenv("ASTERISM_CPU", "Avx2", 1), 0);
  const testing::ProgramResult wrong = testing::run_asterism({"--version"});
  ASSERT_EQ(::unsetenv("ASTERISM_CPU"), 0);
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_NE(chosen.out.find("kernels portable\n"), std::string::npos) << chosen.out;
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.last_error_line().find("ASTERISM_CPU: expected one of portable"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace asterism::cli
