#include "asterism/parallel/expert_shards.h"

#include "asterism/model/slices.h"
#include "asterism/parallel/sharded_tensors.h"

namespace asterism::parallel {

namespace {

constexpr size_t kSlotsOfAMatrix = 5;  // A, B, codes, scales, plain

std::vector<at::Tensor*> slots_of(model::Projection& matrix) {
  model::Projection& m = matrix;
  return {m.lora ? &m.lora->a_RK : nullptr, m.lora ? &m.lora->b_NR : nullptr,
          m.weight.packed ? &m.weight.packed->codes : nullptr, m.weight.packed ? &m.weight.packed->scales : nullptr,
          &m.weight.plain};
}

std::vector<at::Tensor*> slots_of(ExpertWeights& experts) {
  std::vector<at::Tensor*> slots = slots_of(experts.gate_up);
  const std::vector<at::Tensor*> down = slots_of(experts.down);
  slots.insert(slots.end(), down.begin(), down.end());
  return slots;
}

// The experts' part of a tensor as a view: dimension 0 holds all experts in equal parts, or, interleaved, the columns
// [out, r * E] are [out, r, E].
at::Tensor part_of(const at::Tensor& whole, bool interleaved, int num_experts, const ExpertRange& range) {
  if (!interleaved) {
    const int64_t rows = whole.size(0) / num_experts;
    return whole.narrow(0, range.first * rows, range.count * rows);
  }
  const int64_t rank = whole.size(1) / num_experts;
  return whole.view({whole.size(0), rank, num_experts}).narrow(2, range.first, range.count);
}

}  // namespace

bool is_interleaved(size_t slot) {
  return slot % kSlotsOfAMatrix == 1;
}

std::vector<at::Tensor> expert_slots(const ExpertWeights& experts) {
  ExpertWeights handles = experts;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* slot : slots_of(handles)) tensors.push_back(slot != nullptr ? *slot : at::Tensor());
  return tensors;
}

ExpertWeights with_expert_slots(const ExpertWeights& outline, const std::vector<at::Tensor>& slots) {
  ExpertWeights experts = outline;
  const std::vector<at::Tensor*> places = slots_of(experts);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != nullptr) *places[i] = slots[i];
  }
  return experts;
}

ExpertWeights outline_of(const ExpertWeights& experts) {
  return with_expert_slots(experts, std::vector<at::Tensor>(expert_slots(experts).size()));
}

at::Tensor experts_of_whole(const at::Tensor& whole, bool interleaved, int num_experts, const ExpertRange& range) {
  const at::Tensor part = part_of(whole, interleaved, num_experts, range).contiguous();
  return interleaved ? part.view({whole.size(0), part.size(1) * range.count}) : part;
}

std::vector<at::Tensor> outlines_of_experts(const ExpertWeights& all, int num_experts, const ExpertRange& range) {
  std::vector<at::Tensor> slots = expert_slots(all);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].defined()) continue;
    std::vector<int64_t> shape = slots[i].sizes().vec();
    int64_t& shared = shape[is_interleaved(i) ? 1 : 0];
    shared = shared / num_experts * range.count;
    slots[i] = model::outline(shape, slots[i].scalar_type()).requires_grad_(slots[i].requires_grad());
  }
  return slots;
}

void read_experts(at::IntArrayRef whole, bool interleaved, int num_experts, const ExpertRange& range, int64_t begin,
                  const at::Tensor& out, const ReadWhole& read) {
  const int64_t elements = c10::multiply_integers(whole);
  if (!interleaved) return read(elements / num_experts * range.first + begin, out);
  const at::Tensor all = at::empty({out.numel() > 0 ? elements : 0}, out.options());
  read(0, all);
  if (out.numel() > 0) read_held(experts_of_whole(all.view(whole), true, num_experts, range), begin, out);
}

void put_experts(const at::Tensor& part, const at::Tensor& whole, bool interleaved, int num_experts,
                 const ExpertRange& range) {
  const at::Tensor target = part_of(whole, interleaved, num_experts, range);
  target.copy_(part.view(target.sizes()));
}

}  // namespace asterism::parallel
