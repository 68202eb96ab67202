#pragma once

#include <functional>
#include <vector>

#include "asterism/model/weights.h"
#include "asterism/parallel/mesh.h"

namespace asterism::parallel {

/// The routed experts' matrices of one layer.
struct ExpertWeights {
  model::Projection gate_up, down;
};

/// Outlines (model/slices.h) of the tensors of some experts only, with their part of LoRA pairs in PEFT's layout
/// (ops/experts.h), in the order of expert_slots. Tensors that require a gradient still do.
std::vector<at::Tensor> outlines_of_experts(const ExpertWeights& all, int num_experts, const ExpertRange& range);

/// The part of a range of experts in a tensor of all experts, as a tensor of its own shape; a copy where it must be.
at::Tensor experts_of_whole(const at::Tensor& whole, bool interleaved, int num_experts, const ExpertRange& range);

/// Fills `out` with elements begin, begin + 1, .. of what experts_of_whole gives. `read` fills slices of the tensor of
/// all experts, which has the shape `whole`, and is called once. Interleaved, the whole tensor is read where `out` has
/// any elements.
using ReadWhole = std::function<void(int64_t begin, const at::Tensor& out)>;
void read_experts(at::IntArrayRef whole, bool interleaved, int num_experts, const ExpertRange& range, int64_t begin,
                  const at::Tensor& out, const ReadWhole& read);

/// Where a tensor of a range of experts lies in the tensor of all: copies it there. `name` tells LoRA's B, whose
/// columns are interleaved, from all others, whose rows are not.
void put_experts(const at::Tensor& part, const at::Tensor& whole, bool interleaved, int num_experts,
                 const ExpertRange& range);

/// The tensors of `experts` in a fixed order (gate_up, then down: A, B, codes, scales, plain; undefined where there is
/// none), and the same matrices with other tensors in their places.
std::vector<at::Tensor> expert_slots(const ExpertWeights& experts);
ExpertWeights with_expert_slots(const ExpertWeights& outline, const std::vector<at::Tensor>& slots);
/// The same matrices without values.
ExpertWeights outline_of(const ExpertWeights& experts);
/// Whether a slot is a LoRA B.
bool is_interleaved(size_t slot);

}  // namespace asterism::parallel
