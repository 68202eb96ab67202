#pragma once

#include <functional>

#include "asterism/ops/cpu/level.h"

namespace asterism::testing {

/// Restores the level of the kernels and the number of threads.
class KernelSettings {
 public:
  KernelSettings();
  ~KernelSettings();
  KernelSettings(const KernelSettings&) = delete;
  KernelSettings& operator=(const KernelSettings&) = delete;

 private:
  ops::cpu::Level level_;
  int threads_;
};

/// Runs `check` at every level from `lowest` on that this CPU has; failures name the level.
void at_every_level(ops::cpu::Level lowest, const std::function<void()>& check);

/// Fills the scratch memory of the threads of the pool with NaN: what a kernel reads without having written it shows.
void poison_scratch();

}  // namespace asterism::testing
