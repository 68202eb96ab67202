// The hot operators at the sizes of bench/configs/small.json, forward and backward, with the distance from the
// machine's limit in the label. The parts of the model at the widths of small and wide are in operator_parts.cpp;
// bench/ops sets those beside Hugging Face.

#include <ATen/Parallel.h>

#include "asterism/core/memory.h"
#include "asterism/ops/experts.h"
#include "asterism/ops/indexer.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/router.h"
#include "asterism/ops/sparse_attention.h"
#include "asterism/ops/swiglu.h"
#include "bench/operator_parts.h"
#include "bench/roofline.h"

namespace {

using namespace asterism::ops;
using asterism::bench::CallWork;
using asterism::bench::measure;

constexpr int64_t kHidden = 512, kHeads = 8, kHeadDim = 128, kExperts = 16, kTopK = 4, kWidth = 256;
constexpr int64_t kWindow = 128, kIndexTopK = 128, kIndexHeads = 8, kIndexDim = 64;

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).mul_(0.1).requires_grad_(true);
}

// Arguments: rows, bf16. -1 rows: the square product that the peak is made of.
void product(benchmark::State& state) {
  const bool square = state.range(0) < 0, bf16 = state.range(1) != 0;
  const int64_t rows = square ? 2048 : state.range(0), width = square ? 2048 : kHidden;
  const at::ScalarType type = bf16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor x = at::randn({rows, width}).to(type), w = at::randn({width, width}).to(type);
  const double flops = 2.0 * static_cast<double>(rows * width * width);
  measure(state, std::string(square ? "square" : "small projection") + (bf16 ? " bf16" : " fp32"), {flops, 0, type},
          [&] { benchmark::DoNotOptimize(matmul_nt(x, w)); });
}
BENCHMARK(product)
    ->ArgsProduct({{-1, 512, 2048}, {0, 1}})
    ->ArgNames({"rows", "bf16"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// What the triad of the peak is compared with: memory that the process has just got.
void fresh_memory(benchmark::State& state) {
  const at::Tensor x = at::ones({int64_t{16} << 20});
  measure(state, "x + 1 into a new tensor of 64 MB", {0, 2.0 * static_cast<double>(x.nbytes())},
          [&] { benchmark::DoNotOptimize(x + 1); });
}
BENCHMARK(fresh_memory)->UseRealTime()->Unit(benchmark::kMillisecond);

void swiglu_step(benchmark::State& state) {
  const int64_t rows = state.range(0) * kTopK;
  const at::Tensor x = leaf({rows, 2 * kWidth}), dy = at::randn({rows, kWidth});
  measure(state, "small, step", {0, 8.0 * static_cast<double>(rows * kWidth * 4)}, [&] {
    swiglu(x, {}, 10.0).backward(dy);
    x.mutable_grad().reset();
  });
}
BENCHMARK(swiglu_step)->Arg(2048)->UseRealTime()->Unit(benchmark::kMillisecond);

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
  double pairs = 0;
  for (int64_t i = 0; i < t; ++i) {
    const int64_t visible = kind == 0 ? 0 : (i + 1) / ratio;
    pairs += static_cast<double>(std::min(i + 1, kWindow) + (kind == 1 ? std::min(visible, kIndexTopK) : visible));
  }
  constexpr const char* kKinds[] = {"window", "selected", "visible"};
  measure(state, std::string("small ") + kKinds[kind] + " fp32, step", {12.0 * kHeads * kHeadDim * pairs}, [&] {
    sparse_attention(q, kv, entries, selected, sink, documents, kind == 0 ? nullptr : &windows, kWindow, 0.088)
        .o_THP.backward(dy);
    for (const at::Tensor& x : {q, kv, sink}) x.mutable_grad().reset();
    if (entries.defined()) entries.mutable_grad().reset();
  });
}
BENCHMARK(attention_step)
    ->ArgsProduct({{2048}, {0, 1, 2}})
    ->ArgNames({"T", "kind"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void index_choice(benchmark::State& state) {
  const int64_t t = state.range(0);
  const Windows windows = make_windows(make_documents({t}), 4);
  const at::Tensor q = at::randn({t, kIndexHeads, kIndexDim}), k = at::randn({windows.num_entries(), kIndexDim});
  const at::Tensor w = at::randn({t, kIndexHeads});
  measure(state, "small fp32, forward", {0.25 * static_cast<double>(kIndexHeads * kIndexDim * t * t)},
          [&] { benchmark::DoNotOptimize(index_topk(q, k, w, windows, kIndexTopK)); });
}
BENCHMARK(index_choice)->Arg(2048)->Arg(4096)->UseRealTime()->Unit(benchmark::kMillisecond);

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
  constexpr const char* kKinds[] = {"trained fp32", "frozen fp32", "frozen FP8", "frozen FP4"};
  const double flops = (kind == 0 ? 6.0 : 4.0) * static_cast<double>(t * kTopK * 3 * kHidden * kWidth);
  measure(state, std::string("small, ") + kKinds[kind] + ", step", {flops}, [&] {
    grouped_experts(x, router_weights(logits, ids, 1.5), dispatch, gate_up, down, 10.0, {}, {}).backward(dy);
    for (const at::Tensor& input : {x, logits, gate_up.plain, down.plain}) {
      if (input.defined() && input.requires_grad()) input.mutable_grad().reset();
    }
  });
}
BENCHMARK(experts_step)
    ->ArgsProduct({{512, 2048}, {0, 1, 2, 3}})
    ->ArgNames({"T", "kind"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  asterism::keep_freed_memory();  // as the program does
  const asterism::bench::MachinePeak& peak = asterism::bench::machine_peak();
  benchmark::AddCustomContext("peak_fp32_gflops", std::to_string(peak.fp32_flops / 1e9));
  benchmark::AddCustomContext("peak_bf16_gflops", std::to_string(peak.bf16_flops / 1e9));
  benchmark::AddCustomContext("peak_gbytes", std::to_string(peak.bytes / 1e9));
  benchmark::AddCustomContext("threads", std::to_string(at::get_num_threads()));
  asterism::bench::register_parts();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
