// Sparse attention, forward and backward apart, at the shapes of bench/configs: the kernels beside the plain form. The
// label names the case, the counter counts the arithmetic of exact pairs only (4 H P per pair forward, 10 H P
// backward). Compare in one process, interleaved:
//   [ASTERISM_CPU=avx2] bench_attention --benchmark_enable_random_interleaving=true --benchmark_repetitions=5

#include <benchmark/benchmark.h>

#include "asterism/core/memory.h"
#include "asterism/ops/cpu/level.h"
#include "asterism/ops/indexer.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/sparse_attention.h"
#include "asterism/ops/sparse_attention_reference.h"

namespace {

using namespace asterism::ops;

struct Shape {
  const char* name;
  int64_t heads, width, index_topk;
};
constexpr Shape kShapes[] = {{"small", 8, 128, 128}, {"wide", 16, 512, 512}, {"flash", 64, 512, 512}};
constexpr int64_t kWindow = 128;
enum Kind { kWindowOnly, kSelected, kAllVisible };
constexpr const char* kKinds[] = {"window", "selected", "visible"};
constexpr const char* kForms[] = {"plain", "kernels"};

struct Case {
  Documents documents;
  Windows windows;
  at::Tensor q, kv, entries, selected, sink, grad_o;
  double pairs = 0;

  Case(const Shape& shape, int64_t t, int64_t kind, at::ScalarType type)
      : documents(make_documents({t})), windows(make_windows(documents, kind == kSelected ? 4 : 128)) {
    const auto leaf = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type).requires_grad_(true); };
    q = leaf({t, shape.heads, shape.width});
    kv = leaf({t, shape.width});
    sink = at::randn({shape.heads}).requires_grad_(true);
    grad_o = at::randn(q.sizes()).to(type);
    if (kind != kWindowOnly) entries = leaf({windows.num_entries(), shape.width});
    if (kind == kSelected) {
      selected = index_topk(at::randn({t, 8, 64}), at::randn({windows.num_entries(), 64}), at::randn({t, 8}), windows,
                            shape.index_topk);
    }
    for (int64_t i = 0; i < t; ++i) {
      int64_t visible = kind == kWindowOnly ? 0 : (i + 1) / windows.ratio;
      if (kind == kSelected) visible = std::min(visible, shape.index_topk);
      pairs += static_cast<double>(std::min(i + 1, kWindow) + visible);
    }
  }

  at::Tensor run() const {
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(2)));
    return sparse_attention(q, kv, entries, selected, sink, documents, entries.defined() ? &windows : nullptr, kWindow,
                            scale)
        .o_THP;
  }
};

// Arguments: shape, T, kind, bf16, kernels, backward.
void attention(benchmark::State& state) {
  const Shape& shape = kShapes[state.range(0)];
  const bool bf16 = state.range(3) != 0, kernels = state.range(4) != 0, backward = state.range(5) != 0;
  const Case inputs(shape, state.range(1), state.range(2), bf16 ? at::kBFloat16 : at::kFloat);
  std::optional<ReferenceAttention> plain;
  if (!kernels) plain.emplace();
  for (auto _ : state) {
    if (!backward) {
      const at::NoGradGuard no_grad;
      benchmark::DoNotOptimize(inputs.run());
      continue;
    }
    state.PauseTiming();
    const at::Tensor o = inputs.run();
    state.ResumeTiming();
    o.backward(inputs.grad_o);
  }
  state.SetLabel(std::string(shape.name) + " " + kKinds[state.range(2)] + (bf16 ? " bf16 " : " fp32 ") +
                 (backward ? "backward " : "forward ") + kForms[kernels ? 1 : 0] + " " +
                 std::string(cpu::level_name(cpu::level())));
  const double flops = (backward ? 10.0 : 4.0) * static_cast<double>(shape.heads * shape.width) * inputs.pairs;
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
BENCHMARK(attention)
    ->ArgsProduct({{0, 1}, {2048}, {0, 1, 2}, {0, 1}, {0, 1}, {0, 1}})
    ->ArgNames({"shape", "T", "kind", "bf16", "kernels", "backward"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
// What the library's product of large matrices reaches in the same minute, on as many threads.
void product(benchmark::State& state) {
  const at::ScalarType type = state.range(0) != 0 ? at::kBFloat16 : at::kFloat;
  const at::Tensor x = at::randn({2048, 2048}).to(type), w = at::randn({2048, 2048}).to(type);
  for (auto _ : state) benchmark::DoNotOptimize(matmul_nt(x, w));
  state.SetLabel("product 2048 x 2048 x 2048 " + matmul_provider(type));
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * 2048 * 2048 * 2048, benchmark::Counter::kIsIterationInvariantRate,
                                                benchmark::Counter::kIs1000);
}
BENCHMARK(product)->Arg(0)->Arg(1)->ArgName("bf16")->UseRealTime()->Unit(benchmark::kMillisecond);

// Arguments: T, kernels; the sizes of small.
void index_choice(benchmark::State& state) {
  const int64_t t = state.range(0), heads = 8, width = 64;
  const Windows windows = make_windows(make_documents({t}), 4);
  const at::Tensor q = at::randn({t, heads, width}), key = at::randn({windows.num_entries(), width});
  const at::Tensor weight = at::randn({t, heads});
  std::optional<ReferenceAttention> plain;
  if (state.range(1) == 0) plain.emplace();
  for (auto _ : state) benchmark::DoNotOptimize(index_topk(q, key, weight, windows, 128));
  double pairs = 0;
  for (int64_t i = 0; i < t; ++i) pairs += static_cast<double>((i + 1) / 4 > 128 ? (i + 1) / 4 : 0);
  state.SetLabel("small index_topk fp32 T " + std::to_string(t) + " " + kForms[state.range(1)]);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(heads * width) * pairs,
                         benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
BENCHMARK(index_choice)
    ->ArgsProduct({{2048, 8192}, {0, 1}})
    ->ArgNames({"T", "kernels"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
// The published widths, selected entries.
BENCHMARK(attention)
    ->ArgsProduct({{2}, {1024}, {1}, {0, 1}, {1}, {0, 1}})
    ->ArgNames({"shape", "T", "kind", "bf16", "kernels", "backward"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  asterism::keep_freed_memory();  // as the program does
  if (const char* name = std::getenv("ASTERISM_CPU")) cpu::choose_level(cpu::level_of_name(name).value());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
