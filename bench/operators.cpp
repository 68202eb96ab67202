// The hot operators at the sizes of bench/configs/small.json, forward and backward, with the needed arithmetic and the
// bytes moved in the counters: distance from the machine's limit is then visible.

#include <benchmark/benchmark.h>

#include "asterism/ops/experts.h"
#include "asterism/ops/hyper_connection.h"
#include "asterism/ops/indexer.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/rms_norm.h"
#include "asterism/ops/router.h"
#include "asterism/ops/sparse_attention.h"
#include "asterism/ops/swiglu.h"

namespace {

using namespace asterism::ops;

constexpr int64_t kHidden = 512, kHeads = 8, kHeadDim = 128, kStreams = 4, kExperts = 16, kTopK = 4, kWidth = 256;
constexpr int64_t kVocab = 8192, kWindow = 128, kIndexTopK = 128, kIndexHeads = 8, kIndexDim = 64;

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).mul_(0.1).requires_grad_(true);
}

void report(benchmark::State& state, double flops, double bytes) {
  using benchmark::Counter;
  if (flops > 0) state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  if (bytes > 0) state.counters["B/s"] = Counter(bytes, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

void product(benchmark::State& state) {
  const int64_t t = state.range(0);
  const at::Tensor x = at::randn({t, kHidden}), w = at::randn({kHidden, kHidden});
  for (auto _ : state) benchmark::DoNotOptimize(matmul_nt(x, w));
  report(state, 2.0 * t * kHidden * kHidden, 0);
}
BENCHMARK(product)->Arg(512)->Arg(2048)->Unit(benchmark::kMillisecond);

void rms_norm_step(benchmark::State& state) {
  const int64_t t = state.range(0);
  const at::Tensor x = leaf({t, kHidden}), w = leaf({kHidden}), dy = at::randn({t, kHidden});
  for (auto _ : state) rms_norm(x, w, 1e-6).backward(dy);
  report(state, 0, 5.0 * t * kHidden * 4);
}
BENCHMARK(rms_norm_step)->Arg(2048)->Unit(benchmark::kMillisecond);

void swiglu_step(benchmark::State& state) {
  const int64_t rows = state.range(0) * kTopK;
  const at::Tensor x = leaf({rows, 2 * kWidth}), dy = at::randn({rows, kWidth});
  for (auto _ : state) swiglu(x, {}, 10.0).backward(dy);
  report(state, 0, 8.0 * rows * kWidth * 4);
}
BENCHMARK(swiglu_step)->Arg(2048)->Unit(benchmark::kMillisecond);

void hyper_connection_step(benchmark::State& state) {
  const int64_t t = state.range(0), rows = kStreams * (kStreams + 2);
  const at::Tensor x = leaf({t, kStreams, kHidden}), fn = leaf({rows, kStreams * kHidden}), base = leaf({rows});
  const at::Tensor scale = leaf({3}), dy = at::randn({t, kStreams, kHidden});
  for (auto _ : state) {
    const auto pre = hyper_connection_pre(x, fn, base, scale, {});
    hyper_connection_post(x, pre.y_TD, pre.post_TN, pre.comb_TNN).backward(dy);
  }
  report(state, 6.0 * t * rows * kStreams * kHidden, 12.0 * t * kStreams * kHidden * 4);
}
BENCHMARK(hyper_connection_step)->Arg(2048)->Unit(benchmark::kMillisecond);

// Kinds: 0 window only, 1 selected entries of ratio 4, 2 all entries of ratio 128.
void attention_step(benchmark::State& state) {
  const int64_t t = state.range(0), kind = state.range(1), ratio = kind == 1 ? 4 : 128;
  const Documents documents = make_documents({t});
  const Windows windows = make_windows(documents, ratio);
  const at::Tensor q = leaf({t, kHeads, kHeadDim}), kv = leaf({t, kHeadDim}), sink = leaf({kHeads});
  const at::Tensor entries = kind == 0 ? at::Tensor() : leaf({windows.num_entries(), kHeadDim});
  at::Tensor selected;
  if (kind == 1) {
    selected = index_topk(at::randn({t, kIndexHeads, kIndexDim}), at::randn({windows.num_entries(), kIndexDim}),
                          at::randn({t, kIndexHeads}), windows, kIndexTopK);
  }
  const at::Tensor dy = at::randn({t, kHeads, kHeadDim});
  for (auto _ : state) {
    sparse_attention(q, kv, entries, selected, sink, documents, kind == 0 ? nullptr : &windows, kWindow, 0.088)
        .o_THP.backward(dy);
  }
  double pairs = 0;
  for (int64_t i = 0; i < t; ++i) {
    const int64_t visible = kind == 0 ? 0 : (i + 1) / ratio;
    pairs += static_cast<double>(std::min(i + 1, kWindow) + (kind == 1 ? std::min(visible, kIndexTopK) : visible));
  }
  report(state, 12.0 * kHeads * kHeadDim * pairs, 0);
}
BENCHMARK(attention_step)
    ->ArgsProduct({{512, 2048, 4096}, {0, 1, 2}})
    ->ArgNames({"T", "kind"})
    ->Unit(benchmark::kMillisecond);

void index_choice(benchmark::State& state) {
  const int64_t t = state.range(0);
  const Windows windows = make_windows(make_documents({t}), 4);
  const at::Tensor q = at::randn({t, kIndexHeads, kIndexDim}), k = at::randn({windows.num_entries(), kIndexDim});
  const at::Tensor w = at::randn({t, kIndexHeads});
  for (auto _ : state) benchmark::DoNotOptimize(index_topk(q, k, w, windows, kIndexTopK));
  report(state, 0.25 * kIndexHeads * kIndexDim * t * t, 0);
}
BENCHMARK(index_choice)->Arg(2048)->Arg(4096)->Unit(benchmark::kMillisecond);

// Kinds: 0 trained fp32 weights, 1 frozen fp32, 2 frozen FP8, 3 frozen FP4. Trained ones have a third product.
void experts_step(benchmark::State& state) {
  const int64_t t = state.range(0), kind = state.range(1);
  const at::Tensor x = leaf({t, kHidden}), logits = leaf({t, kExperts}), bias = at::zeros({kExperts});
  Matrix gate_up = leaf({kExperts, 2 * kWidth, kHidden}), down = leaf({kExperts, kHidden, kWidth});
  for (Matrix* weight : {&gate_up, &down}) {
    const at::Tensor frozen = weight->plain.detach();
    if (kind == 1) *weight = frozen;
    if (kind > 1) *weight = pack(frozen, kind == 2 ? PackedFormat::kFp8 : PackedFormat::kFp4, at::kByte);
  }
  const at::Tensor ids = choose_experts(logits.detach(), bias, kTopK), dy = at::randn({t, kHidden});
  const Dispatch dispatch = make_dispatch(ids, kExperts);
  for (auto _ : state) {
    grouped_experts(x, router_weights(logits, ids, 1.5), dispatch, gate_up, down, 10.0, {}, {}).backward(dy);
  }
  report(state, (kind == 0 ? 6.0 : 4.0) * t * kTopK * 3 * kHidden * kWidth, 0);
}
BENCHMARK(experts_step)
    ->ArgsProduct({{512, 2048}, {0, 1, 2, 3}})
    ->ArgNames({"T", "kind"})
    ->Unit(benchmark::kMillisecond);

void head_step(benchmark::State& state) {
  const int64_t t = state.range(0);
  const at::Tensor h = leaf({t, kHidden}), w = leaf({kVocab, kHidden}), target = at::randint(kVocab, {t}, at::kLong);
  for (auto _ : state) linear_cross_entropy(h, w, target, {}).backward();
  report(state, 6.0 * t * kHidden * kVocab, 0);
}
BENCHMARK(head_step)->Arg(512)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
