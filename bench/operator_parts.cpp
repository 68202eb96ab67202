#include "bench/operator_parts.h"

#include "asterism/model/block.h"
#include "asterism/model/initialize.h"
#include "asterism/ops/hyper_connection.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/ops/rms_norm.h"
#include "asterism/ops/rms_norm_rope.h"
#include "asterism/train/parameters.h"
#include "bench/needed_work.h"
#include "bench/roofline.h"

namespace asterism::bench {

namespace {

constexpr int64_t kTokens = 2048;

struct PartName {
  std::string part, width;
  bool bf16 = false;

  at::ScalarType type() const { return bf16 ? at::kBFloat16 : at::kFloat; }
  friend bool operator==(const PartName&, const PartName&) = default;
};

// A part ready to run: what of it is trained, its output, and what one token needs. Bytes are the least traffic of a
// pass with tensors of this size, where that and not arithmetic is the limit.
struct Part {
  std::function<at::Tensor()> forward;
  std::vector<at::Tensor> leaves;
  PartWork work;
  double forward_bytes = 0.0, step_bytes = 0.0;
};

model::Config config_of(const std::string& width) {
  model::Config config = model::read_config(std::string(ASTERISM_SOURCE_DIR "/bench/configs/") + width + ".json");
  config.num_mtp_layers = 0;
  return config;
}

at::Tensor input(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes).to(type).requires_grad_(true);
}

// The first layer of the kind as a model of its own: with masters and what is trained as full fine-tuning has them. Its
// vocabulary is small, because neither embedding nor head is measured here.
Part half_part(const PartName& name) {
  struct Half {
    model::Model model;
    std::shared_ptr<const model::StreamContext> context;
    model::LayerDecisions decisions;
    ops::KeptResults kept{/*wanted=*/false};
  };
  const bool moe = name.part == "moe";
  const auto kind = name.part == "swa"   ? model::AttentionKind::kSliding
                    : name.part == "csa" ? model::AttentionKind::kSparse
                                         : model::AttentionKind::kHeavy;
  auto half = std::make_shared<Half>();
  model::Config& config = half->model.config = config_of(name.width);
  config.vocab_size = 1024;
  std::erase_if(config.layers, [&](const model::LayerSpec& layer) {
    return moe ? layer.router != model::RouterKind::kTopK : layer.attention != kind;
  });
  config.layers.resize(1);
  half->model.weights = model::initialize_weights(config, 0, at::kFloat);
  Part part;
  for (const train::Parameter& parameter : train::full_parameters(half->model, {})) {
    const bool of_moe = parameter.name.find(".mlp.") != std::string::npos ||
                        parameter.name.find(".ffn_hc.") != std::string::npos ||
                        parameter.name.find(".post_attention_layernorm.") != std::string::npos;
    if (parameter.name.starts_with("model.layers.") && of_moe == moe) part.leaves.push_back(parameter.value);
  }
  const at::Tensor ids = at::randint(config.vocab_size, {kTokens}, at::kLong);
  model::ForwardOptions options;
  options.compute = name.type();
  half->context = model::make_stream_context(config, model::make_token_batch(ids, ids, {kTokens}), options);
  const at::Tensor x_TND = input({kTokens, config.num_streams, config.hidden_size}, name.type());
  part.leaves.push_back(x_TND);
  part.forward = [half, x_TND, moe] {
    half->decisions = {};
    const model::LayerSpec& spec = half->model.config.layers[0];
    const model::LayerWeights& weights = half->model.weights.layers[0];
    return moe ? model::moe_half(weights.moe, spec, 0, x_TND, *half->context, half->decisions, half->kept).x_TND
               : model::attention_half(weights.attention, spec, 0, x_TND, *half->context, half->decisions, half->kept)
                     .x_TND;
  };
  part.work = mixing_work(config) +
              (moe ? routed_work(config) + shared_work(config) : attention_work(config, config.layers[0], kTokens));
  return part;
}

// pre, RMSNorm, post: the streams are read twice and written once, the sublayer's input and output once each way.
Part mixing_part(const PartName& name) {
  const model::Config config = config_of(name.width);
  const int64_t n = config.num_streams, d = config.hidden_size, rows = n * (n + 2);
  const at::Tensor x = input({kTokens, n, d}, name.type()), norm = input({d}, at::kFloat);
  const at::Tensor fn = at::randn({rows, n * d}).mul_(0.02).requires_grad_(true), base = input({rows}, at::kFloat);
  const at::Tensor scale = at::ones({3}).requires_grad_(true);
  Part part;
  part.leaves = {x, norm, fn, base, scale};
  part.forward = [=, hc = config.hyper_connection(), eps = config.rms_norm_eps] {
    const auto pre = ops::hyper_connection_pre(x, fn, base, scale, hc);
    return ops::hyper_connection_post(x, ops::rms_norm(pre.y_TD, norm, eps), pre.post_TN, pre.comb_TNN);
  };
  part.work = mixing_work(config);
  const double token = static_cast<double>(kTokens * d) * static_cast<double>(x.element_size());
  part.forward_bytes = token * static_cast<double>(3 * n + 4);
  part.step_bytes = part.forward_bytes + token * static_cast<double>(5 * n + 6);
  return part;
}

Part head_part(const PartName& name) {
  const model::Config config = config_of(name.width);
  const at::Tensor h = input({kTokens, config.hidden_size}, name.type());
  const at::Tensor w = at::randn({config.vocab_size, config.hidden_size}).mul_(0.02).requires_grad_(true);
  const at::Tensor target = at::randint(config.vocab_size, {kTokens}, at::kLong);
  Part part;
  part.leaves = {h, w};
  part.forward = [=] { return ops::linear_cross_entropy(h, w, target, {}); };
  part.work.numbers = static_cast<double>(w.numel());
  return part;
}

// Forward reads and writes once; backward reads the input and its gradient's source and writes one gradient.
void set_norm_bytes(Part& part, const at::Tensor& x) {
  part.forward_bytes = 2.0 * static_cast<double>(x.nbytes());
  part.step_bytes = 5.0 * static_cast<double>(x.nbytes());
}

Part norm_part(const PartName& name) {
  const model::Config config = config_of(name.width);
  const at::Tensor x = input({kTokens, config.hidden_size}, name.type()), w = input({config.hidden_size}, at::kFloat);
  Part part;
  part.leaves = {x, w};
  part.forward = [=] { return ops::rms_norm(x, w, 1e-6); };
  set_norm_bytes(part, x);
  return part;
}

// The norm of the query heads and the rotation that follows it are one operator here.
Part query_norm_part(const PartName& name) {
  const model::Config config = config_of(name.width);
  const ops::RopeTable table = ops::make_rope_table(config.main_rope, at::arange(kTokens), at::kFloat);
  const at::Tensor q = input({kTokens, config.num_heads, config.head_dim}, name.type());
  Part part;
  part.leaves = {q};
  part.forward = [=] { return ops::rms_norm_rope(q, 1e-6, table); };
  set_norm_bytes(part, q);
  return part;
}

Part make_part(const PartName& name) {
  at::manual_seed(0);
  if (name.part == "mhc") return mixing_part(name);
  if (name.part == "head") return head_part(name);
  if (name.part == "norm") return norm_part(name);
  if (name.part == "query_norm") return query_norm_part(name);
  return half_part(name);
}

// A benchmark is called several times to find the number of its iterations: the last part is kept.
const Part& part_of(const PartName& name) {
  static PartName last;
  static Part part;
  if (!(last == name)) {
    part = {};
    part = make_part(name);
    last = name;
  }
  return part;
}

void run_part(benchmark::State& state, const PartName& name, bool step) {
  const Part& part = part_of(name);
  const CallWork work{kTokens * (step ? part.work.step(true) : part.work.forward()),
                      step ? part.step_bytes : part.forward_bytes, name.type()};
  const at::Tensor sample = part.forward();
  const at::Tensor grad = sample.dim() == 0 ? at::ones_like(sample) : at::randn_like(sample);
  measure(state, name.part + " " + name.width + (name.bf16 ? " bf16" : " fp32") + (step ? ", step" : ", forward"), work,
          [&] {
            const at::Tensor y = part.forward();
            if (!step) return;
            y.backward(grad);
            for (const at::Tensor& leaf : part.leaves) leaf.mutable_grad().reset();
          });
}

}  // namespace

void register_parts() {
  for (const char* width : {"small", "wide"}) {
    for (const char* part : {"swa", "csa", "hca", "moe", "mhc", "head", "norm", "query_norm"}) {
      for (const bool bf16 : {false, true}) {
        for (const bool step : {false, true}) {
          const PartName name{part, width, bf16};
          if (name.part == "head" && !step) continue;  // its forward pass makes the gradients
          const std::string title =
              name.part + "/" + width + (bf16 ? "/bf16" : "/fp32") + (step ? "/step" : "/forward");
          benchmark::RegisterBenchmark(title.c_str(),
                                       [name, step](benchmark::State& state) { run_part(state, name, step); })
              ->UseRealTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace asterism::bench
