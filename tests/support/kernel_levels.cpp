#include "tests/support/kernel_levels.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "asterism/ops/cpu/scratch.h"

namespace asterism::testing {

using ops::cpu::Level;

KernelSettings::KernelSettings() : level_(ops::cpu::level()), threads_(at::get_num_threads()) {}

KernelSettings::~KernelSettings() {
  ops::cpu::choose_level(level_);
  at::set_num_threads(threads_);
}

void at_every_level(Level lowest, const std::function<void()>& check) {
  const KernelSettings restored;
  for (const Level level : {Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16}) {
    if (level < lowest || level > ops::cpu::highest_level()) continue;
    SCOPED_TRACE(std::string(ops::cpu::level_name(level)));
    ops::cpu::choose_level(level);
    check();
  }
}

void poison_scratch() {
  constexpr size_t kBytes = 6 << 20;
  at::parallel_for(0, at::get_num_threads(), 1, [](int64_t, int64_t) {
    auto* numbers = static_cast<float*>(ops::cpu::thread_scratch(kBytes));
    std::fill(numbers, numbers + kBytes / sizeof(float), NAN);
  });
}

}  // namespace asterism::testing
