#include "asterism/model/weights.h"

namespace asterism::model {

namespace {

// Walks the structs once for every purpose: names, shapes and roles stand here and nowhere else.
class Walk {
 public:
  Walk(const Config& config, const TensorVisitor* tensors, const ProjectionVisitor* projections)
      : c_(config), tensors_(tensors), projections_(projections) {}

  void model(Weights& w) {
    w.layers.resize(c_.layers.size());
    w.mtp.resize(c_.num_mtp_layers);
    tensor("model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size}, TensorRole::kMatrix, w.embed);
    for (size_t i = 0; i < w.layers.size(); ++i) {
      layer(c_.layers[i], "model.layers." + std::to_string(i) + ".", w.layers[i]);
    }
    head("model.hc_head.", w.hc_head);
    norm("model.norm.weight", c_.hidden_size, w.norm);
    tensor("lm_head.weight", {c_.vocab_size, c_.hidden_size}, TensorRole::kMatrix, w.lm_head);
    for (size_t i = 0; i < w.mtp.size(); ++i) mtp("mtp." + std::to_string(i) + ".", w.mtp[i]);
  }

  void attention_half(const LayerSpec& spec, const std::string& prefix, AttentionHalf& half) {
    hyper_connection(prefix + "attn_hc.", half.hc);
    norm(prefix + "input_layernorm.weight", c_.hidden_size, half.norm);
    attention(spec, prefix + "self_attn.", half.attention);
  }

  void moe_half(const LayerSpec& spec, const std::string& prefix, MoeHalf& half) {
    hyper_connection(prefix + "ffn_hc.", half.hc);
    norm(prefix + "post_attention_layernorm.weight", c_.hidden_size, half.norm);
    moe(spec, prefix + "mlp.", half.moe);
  }

 private:
  void layer(const LayerSpec& spec, const std::string& prefix, LayerWeights& w) {
    attention_half(spec, prefix, w.attention);
    moe_half(spec, prefix, w.moe);
  }

  void mtp(const std::string& prefix, MtpWeights& w) {
    norm(prefix + "enorm.weight", c_.hidden_size, w.enorm);
    norm(prefix + "hnorm.weight", c_.hidden_size, w.hnorm);
    projection(prefix + "e_proj.weight", {c_.hidden_size, c_.hidden_size}, w.e_proj);
    projection(prefix + "h_proj.weight", {c_.hidden_size, c_.hidden_size}, w.h_proj);
    layer(Config::mtp_layer(), prefix, w.layer);
    head(prefix + "hc_head.", w.hc_head);
    norm(prefix + "norm.weight", c_.hidden_size, w.norm);
  }

  void attention(const LayerSpec& spec, const std::string& prefix, AttentionWeights& w) {
    const int64_t channels = c_.num_heads * c_.head_dim;
    projection(prefix + "q_a_proj.weight", {c_.q_lora_rank, c_.hidden_size}, w.q_a_proj);
    norm(prefix + "q_a_norm.weight", c_.q_lora_rank, w.q_a_norm);
    projection(prefix + "q_b_proj.weight", {channels, c_.q_lora_rank}, w.q_b_proj);
    projection(prefix + "kv_proj.weight", {c_.head_dim, c_.hidden_size}, w.kv_proj);
    norm(prefix + "kv_norm.weight", c_.head_dim, w.kv_norm);
    projection(prefix + "o_a_proj.weight", {c_.o_groups * c_.o_lora_rank, channels / c_.o_groups}, w.o_a_proj);
    projection(prefix + "o_b_proj.weight", {c_.hidden_size, c_.o_groups * c_.o_lora_rank}, w.o_b_proj);
    tensor(prefix + "sinks", {c_.num_heads}, TensorRole::kFp32, w.sinks);
    if (spec.attention == AttentionKind::kSliding) return;
    const bool overlap = spec.attention == AttentionKind::kSparse;
    if (!w.compressor) w.compressor.emplace();
    compressor(prefix + "compressor.", c_.head_dim, spec.ratio, overlap, *w.compressor);
    if (!overlap) return;
    if (!w.indexer) w.indexer.emplace();
    const std::string indexer = prefix + "compressor.indexer.";
    compressor(indexer, c_.index_head_dim, spec.ratio, overlap, w.indexer->compressor);
    projection(indexer + "q_b_proj.weight", {c_.index_heads * c_.index_head_dim, c_.q_lora_rank}, w.indexer->q_b_proj);
    projection(indexer + "scorer.weights_proj.weight", {c_.index_heads, c_.hidden_size}, w.indexer->weights_proj);
  }

  void compressor(const std::string& prefix, int64_t width, int64_t ratio, bool overlap, CompressorWeights& w) {
    const int64_t rows = overlap ? 2 * width : width;
    projection(prefix + "kv_proj.weight", {rows, c_.hidden_size}, w.kv_proj);
    projection(prefix + "gate_proj.weight", {rows, c_.hidden_size}, w.gate_proj);
    tensor(prefix + "position_bias", {ratio, rows}, TensorRole::kFp32, w.position_bias);
    norm(prefix + "kv_norm.weight", width, w.kv_norm);
  }

  void hyper_connection(const std::string& prefix, HyperConnectionWeights& w) {
    const int64_t n = c_.num_streams, rows = n * (n + 2);
    tensor(prefix + "fn", {rows, n * c_.hidden_size}, TensorRole::kFp32, w.fn);
    tensor(prefix + "base", {rows}, TensorRole::kFp32, w.base);
    tensor(prefix + "scale", {3}, TensorRole::kFp32, w.scale);
  }

  void head(const std::string& prefix, HyperHeadWeights& w) {
    tensor(prefix + "hc_fn", {c_.num_streams, c_.num_streams * c_.hidden_size}, TensorRole::kFp32, w.fn);
    tensor(prefix + "hc_base", {c_.num_streams}, TensorRole::kFp32, w.base);
    tensor(prefix + "hc_scale", {1}, TensorRole::kFp32, w.scale);
  }

  void moe(const LayerSpec& spec, const std::string& prefix, MoeWeights& w) {
    const int64_t e = c_.num_experts, d = c_.hidden_size, i = c_.expert_width;
    projection(prefix + "gate.weight", {e, d}, w.gate);
    if (spec.router == RouterKind::kHash) {
      tensor(prefix + "gate.tid2eid", {c_.vocab_size, c_.experts_per_token}, TensorRole::kTable, w.tid2eid);
    } else {
      tensor(prefix + "gate.e_score_correction_bias", {e}, TensorRole::kRouterBias, w.bias);
    }
    projection(prefix + "experts.gate_up_proj", {e, 2 * i, d}, w.gate_up);
    projection(prefix + "experts.down_proj", {e, d, i}, w.down);
    projection(prefix + "shared_experts.gate_proj.weight", {i, d}, w.shared_gate);
    projection(prefix + "shared_experts.up_proj.weight", {i, d}, w.shared_up);
    projection(prefix + "shared_experts.down_proj.weight", {d, i}, w.shared_down);
  }

  void norm(const std::string& name, int64_t width, at::Tensor& t) { tensor(name, {width}, TensorRole::kNorm, t); }

  void tensor(const std::string& name, std::vector<int64_t> shape, TensorRole role, at::Tensor& t) {
    if (tensors_ != nullptr) (*tensors_)({name, std::move(shape), role}, t);
  }

  void projection(const std::string& name, std::vector<int64_t> shape, Projection& p) {
    if (projections_ != nullptr) (*projections_)({name, shape, TensorRole::kMatrix}, p);
    tensor(name, std::move(shape), TensorRole::kMatrix, p.weight.plain);
  }

  const Config& c_;
  const TensorVisitor* tensors_;
  const ProjectionVisitor* projections_;
};

// Every tensor and, before a projection's own weight, its LoRA pair and what it is packed in.
template <typename Visit>
void visit_slots(const SlotVisitor& visit, const Visit& walk) {
  const TensorVisitor tensors = [&](const TensorSpec&, at::Tensor& tensor) { visit(tensor); };
  const ProjectionVisitor projections = [&](const TensorSpec&, Projection& projection) {
    if (projection.lora) {
      visit(projection.lora->a_RK);
      visit(projection.lora->b_NR);
    }
    if (projection.weight.packed) {
      visit(projection.weight.packed->codes);
      visit(projection.weight.packed->scales);
    }
  };
  walk(tensors, projections);
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const Config& config) {
  std::vector<TensorSpec> specs;
  Weights weights;
  for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor&) { specs.push_back(spec); });
  return specs;
}

void for_each_tensor(const Config& config, Weights& weights, const TensorVisitor& visit) {
  Walk(config, &visit, nullptr).model(weights);
}

void for_each_weight(const Config& config, const Weights& weights, const WeightVisitor& visit) {
  Weights handles = weights;  // the walk hands out slots that may be changed; handles share the memory
  // A projection is visited before its tensor.
  const ops::Matrix* matrix = nullptr;
  const ProjectionVisitor projections = [&](const TensorSpec&, Projection& p) { matrix = &p.weight; };
  const TensorVisitor tensors = [&](const TensorSpec& spec, at::Tensor& tensor) {
    visit(spec, matrix != nullptr ? *matrix : ops::Matrix(tensor));
    matrix = nullptr;
  };
  Walk(config, &tensors, &projections).model(handles);
}

std::map<std::string, int64_t> bytes_by_storage(const Config& config, const Weights& weights) {
  std::map<std::string, int64_t> bytes;
  for_each_weight(config, weights,
                  [&](const TensorSpec&, const ops::Matrix& weight) { bytes[weight.storage()] += weight.bytes(); });
  return bytes;
}

void for_each_projection(const Config& config, Weights& weights, const ProjectionVisitor& visit) {
  Walk(config, nullptr, &visit).model(weights);
}

void for_each_slot(const Config& config, const LayerSpec& layer, AttentionHalf& half, const SlotVisitor& visit) {
  visit_slots(visit, [&](const TensorVisitor& tensors, const ProjectionVisitor& projections) {
    Walk(config, &tensors, &projections).attention_half(layer, "", half);
  });
}

void for_each_slot(const Config& config, const LayerSpec& layer, MoeHalf& half, const SlotVisitor& visit) {
  visit_slots(visit, [&](const TensorVisitor& tensors, const ProjectionVisitor& projections) {
    Walk(config, &tensors, &projections).moe_half(layer, "", half);
  });
}

}  // namespace asterism::model
