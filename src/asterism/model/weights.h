#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "asterism/model/config.h"
#include "asterism/ops/linear.h"
#include "asterism/ops/matrix.h"

namespace asterism::model {

/// A matrix that may be kept packed and may carry a LoRA update. For experts the pair has PEFT's layout
/// (ops/experts.h).
struct Projection {
  ops::Matrix weight;
  std::optional<ops::LoraPair> lora;
  double lora_dropout = 0.0;
};

struct CompressorWeights {
  Projection kv_proj;        // [co * c, D]
  Projection gate_proj;      // [co * c, D]
  at::Tensor position_bias;  // [ratio, co * c] fp32
  at::Tensor kv_norm;        // [c]
};

struct IndexerWeights {
  CompressorWeights compressor;  // c = index_head_dim
  Projection q_b_proj;           // [Hi * Di, ql]
  Projection weights_proj;       // [Hi, D]
};

struct AttentionWeights {
  Projection q_a_proj;                          // [ql, D]
  at::Tensor q_a_norm;                          // [ql]
  Projection q_b_proj;                          // [H * P, ql]
  Projection kv_proj;                           // [P, D]
  at::Tensor kv_norm;                           // [P]
  Projection o_a_proj;                          // [og * ol, H * P / og]
  Projection o_b_proj;                          // [D, og * ol]
  at::Tensor sinks;                             // [H] fp32
  std::optional<CompressorWeights> compressor;  // kSparse and kHeavy, c = P
  std::optional<IndexerWeights> indexer;        // kSparse
};

struct HyperConnectionWeights {
  at::Tensor fn;     // [N (N + 2), N D] fp32
  at::Tensor base;   // [N (N + 2)] fp32
  at::Tensor scale;  // [3] fp32
};

struct HyperHeadWeights {
  at::Tensor fn;     // [N, N D] fp32
  at::Tensor base;   // [N] fp32
  at::Tensor scale;  // [1] fp32
};

struct MoeWeights {
  Projection gate;                    // [E, D], computed in fp32
  at::Tensor bias;                    // [E] fp32, learned router only; never trained by gradient
  at::Tensor tid2eid;                 // [V, K] int64, hash router only
  Projection gate_up;                 // [E, 2 I, D]: rows 0 .. I-1 gate, I .. 2I-1 up
  Projection down;                    // [E, D, I]
  Projection shared_gate, shared_up;  // [I, D]
  Projection shared_down;             // [D, I]
};

/// Half of a block: the unit of recomputation and, later, of sharding.
struct AttentionHalf {
  HyperConnectionWeights hc;
  at::Tensor norm;  // input_layernorm [D]
  AttentionWeights attention;
};

struct MoeHalf {
  HyperConnectionWeights hc;
  at::Tensor norm;  // post_attention_layernorm [D]
  MoeWeights moe;
};

struct LayerWeights {
  AttentionHalf attention;
  MoeHalf moe;
};

struct MtpWeights {
  at::Tensor enorm, hnorm, norm;  // [D]
  Projection e_proj, h_proj;      // [D, D]
  HyperHeadWeights hc_head;
  LayerWeights layer;
};

struct Weights {
  at::Tensor embed;  // [V, D]
  std::vector<LayerWeights> layers;
  HyperHeadWeights hc_head;
  at::Tensor norm;     // [D]
  at::Tensor lm_head;  // [V, D]
  std::vector<MtpWeights> mtp;
};

/// What a tensor is, which decides its storage, its initial value and whether it can be trained.
enum class TensorRole {
  kMatrix,      // kept in the storage type of the recipe
  kNorm,        // RMSNorm weight, fp32
  kFp32,        // mHC, sinks, position bias: fp32 in every mode
  kRouterBias,  // fp32, never trained by gradient
  kTable,       // integer
};

/// The plan of one tensor under its canonical (Hugging Face module) name, for example
/// "model.layers.3.mlp.experts.gate_up_proj"; MTP tensors are "mtp.0." + the same leaves.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role = TensorRole::kMatrix;
};

/// All tensors of a model, in the order of the network.
std::vector<TensorSpec> tensor_specs(const Config& config);

using TensorVisitor = std::function<void(const TensorSpec& spec, at::Tensor& tensor)>;
using ProjectionVisitor = std::function<void(const TensorSpec& spec, Projection& projection)>;

/// Calls `visit` for every tensor of the model (LoRA matrices excluded), in the order of tensor_specs; slots that the
/// configuration needs are created first. The slot of a matrix that is kept packed is undefined: who reads all values
/// takes for_each_weight.
void for_each_tensor(const Config& config, Weights& weights, const TensorVisitor& visit);

/// Calls `visit` for every tensor of the model (LoRA matrices excluded) as it is kept, plain or packed, in the order of
/// tensor_specs.
using WeightVisitor = std::function<void(const TensorSpec& spec, const ops::Matrix& weight)>;
void for_each_weight(const Config& config, const Weights& weights, const WeightVisitor& visit);

/// Memory of the weights in bytes, by how they are kept: "fp32", "bf16", "fp8", "fp4", "int64".
std::map<std::string, int64_t> bytes_by_storage(const Config& config, const Weights& weights);

/// Calls `visit` for every matrix that may carry LoRA.
void for_each_projection(const Config& config, Weights& weights, const ProjectionVisitor& visit);

/// Calls `visit` for every tensor that one half holds, LoRA matrices and the codes and scales of packed matrices
/// included: how the recomputation node swaps leaves in, and how ranks share a half. The plain slot of a packed matrix
/// is undefined.
using SlotVisitor = std::function<void(at::Tensor& tensor)>;
void for_each_slot(const Config& config, const LayerSpec& layer, AttentionHalf& half, const SlotVisitor& visit);
void for_each_slot(const Config& config, const LayerSpec& layer, MoeHalf& half, const SlotVisitor& visit);

}  // namespace asterism::model
