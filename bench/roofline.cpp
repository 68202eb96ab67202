#include "bench/roofline.h"

#include <cmath>

namespace asterism::bench {

namespace {

std::string whole(double value) {
  return std::to_string(std::lround(value));
}

}  // namespace

const MachinePeak& machine_peak() {
  static const MachinePeak peak = measure_peak();
  return peak;
}

void set_roofline(benchmark::State& state, const std::string& what, const CallWork& work, double seconds) {
  const MachinePeak& peak = machine_peak();
  const double arithmetic = work.flops / peak.flops(work.type), traffic = work.bytes / peak.bytes;
  const double share = std::max(arithmetic, traffic) / seconds;
  const std::string percent = " = " + whole(100.0 * share) + " % of the ";
  state.SetLabel(what + ": " +
                 (arithmetic >= traffic ? whole(work.flops / seconds / 1e9) + " GFLOP/s" + percent + "products' peak"
                                        : whole(work.bytes / seconds / 1e9) + " GB/s" + percent + "triad"));
  state.counters["gflops"] = work.flops / seconds / 1e9;
  state.counters["gbytes"] = work.bytes / seconds / 1e9;
  state.counters["share"] = share;
}

}  // namespace asterism::bench
