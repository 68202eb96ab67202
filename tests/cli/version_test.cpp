#include "asterism/cli/version.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "asterism/version.h"

namespace asterism::cli {
namespace {

TEST(Version, NamesVersionAndCpu) {
  const std::string version = version_text();
  EXPECT_EQ(version.find(std::string("asterism ") + kVersion + "\n"), 0u) << version;
  EXPECT_NE(version.find(cpu_level()), std::string::npos) << version;
}

TEST(Version, CpuLevelAgreesWithLibtorch) {
  // libtorch picks its kernels by the same question, unless an environment variable tells it otherwise.
  if (std::getenv("ATEN_CPU_CAPABILITY") != nullptr) GTEST_SKIP() << "ATEN_CPU_CAPABILITY is set";
  const std::string capability = at::get_cpu_capability();
  if (capability != "AVX2" && capability != "AVX512") GTEST_SKIP() << "not an x86 CPU: " << capability;
  EXPECT_NE(cpu_level().find("AVX"), std::string::npos) << capability;
}

}  // namespace
}  // namespace asterism::cli
