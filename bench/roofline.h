#pragma once

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

#include "bench/machine_peak.h"

namespace asterism::bench {

/// What one call must do: arithmetic on operands of `type`, and bytes that must be read or written at least once.
struct CallWork {
  double flops = 0.0, bytes = 0.0;
  at::ScalarType type = at::kFloat;
};

/// The peak of this process, measured at the first call.
const MachinePeak& machine_peak();

/// "small csa fp32: 212 GFLOP/s = 47 % of the products' peak", or GB/s and the triad's, whichever of the two takes
/// longer at its peak. The same numbers become counters: gflops, gbytes (per second) and share.
void set_roofline(benchmark::State& state, const std::string& what, const CallWork& work, double seconds);

/// Runs and labels a case; `run` is one call.
template <typename Run>
void measure(benchmark::State& state, const std::string& what, const CallWork& work, const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  set_roofline(state, what, work, seconds / static_cast<double>(state.iterations()));
}

}  // namespace asterism::bench
