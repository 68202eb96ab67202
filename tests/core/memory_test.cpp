#include "asterism/core/memory.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <vector>

namespace asterism {
namespace {

TEST(Memory, TouchedPagesAreCountedAndThePeakStays) {
  constexpr uint64_t kBytes = 64 << 20;
  const uint64_t before = resident_bytes();
  ASSERT_GT(before, 0U);
  {
    const std::vector<char> block(kBytes, 1);
    EXPECT_GE(resident_bytes(), before + kBytes * 9 / 10);
  }
  EXPECT_GE(peak_resident_bytes(), before + kBytes * 9 / 10);
}

TEST(Memory, WhatIsAvailableIsPartOfTheMachine) {
  struct sysinfo machine = {};
  ASSERT_EQ(::sysinfo(&machine), 0);
  const uint64_t total = uint64_t{machine.totalram} * machine.mem_unit;
  const uint64_t available = available_memory_bytes();
  EXPECT_GT(available, total / 1000);
  EXPECT_LT(available, total);
}

}  // namespace
}  // namespace asterism
