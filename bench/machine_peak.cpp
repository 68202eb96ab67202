#include "bench/machine_peak.h"

#include <chrono>

#include "asterism/ops/matmul.h"

namespace asterism::bench {

namespace {

using PeakClock = std::chrono::steady_clock;

template <typename Run>
double least_seconds(int repeats, const Run& run) {
  run();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = PeakClock::now();
    run();
    least = std::min(least, std::chrono::duration<double>(PeakClock::now() - start).count());
  }
  return least;
}

}  // namespace

double product_peak(at::ScalarType type) {
  double best = 0.0;
  for (const int64_t n : {1024, 2048, 3072}) {
    const at::Tensor x = at::randn({n, n}).to(type), w = at::randn({n, n}).to(type);
    const double seconds = least_seconds(6, [&] { ops::matmul_nt(x, w); });
    best = std::max(best, 2.0 * static_cast<double>(n * n * n) / seconds);
  }
  return best;
}

double bandwidth_peak() {
  const int64_t count = int64_t{64} << 20;
  const at::Tensor b = at::ones({count}), c = at::ones({count});
  at::Tensor a = at::empty({count});
  const double seconds = least_seconds(6, [&] { at::add_out(a, b, c, 0.5); });
  return 3.0 * static_cast<double>(a.nbytes()) / seconds;
}

MachinePeak measure_peak() {
  return {product_peak(at::kFloat), product_peak(at::kBFloat16), bandwidth_peak()};
}

}  // namespace asterism::bench
