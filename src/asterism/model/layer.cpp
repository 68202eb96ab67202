#include "asterism/model/layer.h"

namespace asterism::model {

namespace {

template <typename Half>
std::vector<at::Tensor> take_slots(const Config& config, const LayerSpec& spec, const Half& half) {
  std::vector<at::Tensor> slots;
  Half copy = half;
  for_each_slot(config, spec, copy, [&](at::Tensor& slot) { slots.push_back(slot); });
  return slots;
}

template <typename Half>
Half with_slots(const Config& config, const LayerSpec& spec, const Half& half, const std::vector<at::Tensor>& slots) {
  Half copy = half;
  size_t next = 0;
  for_each_slot(config, spec, copy, [&](at::Tensor& slot) { slot = slots[next++]; });
  return copy;
}

// The task outlives this call (its node runs it again), so it holds the half by value: handles only, no data.
template <typename Half, typename Run>
UnitTask make_task(const Config& config, const LayerSpec& spec, const Half& half, const UnitId& id,
                   const StreamContext& context, const Run& run) {
  UnitTask task;
  if (context.placement) {
    task.source = context.placement->unit(id);
  } else {
    task.slots = take_slots(config, spec, half);
  }
  task.run = [&config, spec, half, run](const at::Tensor& x_TND, const std::vector<at::Tensor>& slots,
                                        ops::KeptResults& kept) {
    return run(with_slots(config, spec, half, slots), x_TND, kept);
  };
  return task;
}

}  // namespace

void add_loss(at::Tensor& sum, const at::Tensor& value) {
  if (!value.defined()) return;
  sum = sum.defined() ? sum + value : value;
}

at::Tensor run_layer(const Config& config, const LayerWeights& weights, const LayerSpec& spec, int64_t layer,
                     const at::Tensor& x_TND, const std::shared_ptr<const StreamContext>& context, Recompute recompute,
                     const std::shared_ptr<LayerDecisions>& decisions, LossSums& sums) {
  const UnitTask attention_task = make_task(
      config, spec, weights.attention, {UnitKind::kAttention, layer}, *context,
      [context, decisions, spec, layer](const AttentionHalf& half, const at::Tensor& x, ops::KeptResults& kept) {
        return attention_half(half, spec, layer, x, *context, *decisions, kept);
      });
  const UnitOutput attended = run_unit(attention_task, x_TND, recompute);
  add_loss(sums.indexer_loss, attended.auxiliary);
  const UnitTask moe_task =
      make_task(config, spec, weights.moe, {UnitKind::kMoe, layer}, *context,
                [context, decisions, spec, layer](const MoeHalf& half, const at::Tensor& x, ops::KeptResults& kept) {
                  return moe_half(half, spec, layer, x, *context, *decisions, kept);
                });
  const UnitOutput mixed = run_unit(moe_task, attended.x_TND, recompute);
  add_loss(sums.balance_loss, mixed.auxiliary);
  return mixed.x_TND;
}

}  // namespace asterism::model
