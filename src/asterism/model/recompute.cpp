#include "asterism/model/recompute.h"

#include <torch/csrc/autograd/autograd.h>

namespace asterism::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// One run of the half on fresh leaves, with its private graph.
struct RecordedRun {
  variable_list leaves;   // those of (x, slots) that want a gradient
  variable_list outputs;  // x and, when there is one, the auxiliary loss
};

RecordedRun record(const HalfTask& task, const at::Tensor& x_TND, const std::vector<bool>& wanted) {
  const at::AutoGradMode recording(true);
  RecordedRun run;
  const auto leaf = [&](const at::Tensor& value, bool want) {
    if (!value.defined() || !want) return value.defined() ? value.detach() : value;
    run.leaves.push_back(value.detach().requires_grad_(true));
    return run.leaves.back();
  };
  const at::Tensor x_leaf = leaf(x_TND, wanted[0]);
  std::vector<at::Tensor> slots;
  for (size_t i = 0; i < task.slots.size(); ++i) slots.push_back(leaf(task.slots[i], wanted[i + 1]));
  const HalfOutput output = task.run(x_leaf, slots);
  run.outputs.push_back(output.x_TND);
  if (output.auxiliary.defined()) run.outputs.push_back(output.auxiliary);
  return run;
}

// What the node keeps besides its saved input: lives in the context as a capsule.
struct HalfState : torch::CustomClassHolder {
  HalfTask task;
  Recompute mode = Recompute::kBlocks;
  std::vector<bool> wanted;  // of x, then of every slot
  RecordedRun run;           // kNone only
};

struct HalfNode : Function<HalfNode> {
  // Inputs: x, then the slots that want a gradient.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_TND, at::TensorList /*wanted_slots*/,
                               const c10::intrusive_ptr<HalfState>& state) {
    variable_list results;
    if (state->mode == Recompute::kNone) {
      state->run = record(state->task, x_TND, state->wanted);
      for (const at::Tensor& output : state->run.outputs) results.push_back(output.detach());
    } else {
      const HalfOutput output = state->task.run(x_TND, state->task.slots);
      results.push_back(output.x_TND);
      if (output.auxiliary.defined()) results.push_back(output.auxiliary);
      ctx->save_for_backward({x_TND});
    }
    ctx->saved_data["state"] =
        c10::IValue::make_capsule(c10::static_intrusive_pointer_cast<torch::CustomClassHolder>(state));
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    const auto capsule = ctx->saved_data["state"].toCapsule();
    auto& state = static_cast<HalfState&>(*capsule);
    RecordedRun run = state.mode == Recompute::kNone ? std::move(state.run)
                                                     : record(state.task, ctx->get_saved_variables()[0], state.wanted);
    TORCH_CHECK(!run.outputs.empty(), "[recompute] the backward pass of a half was asked for twice");
    state.run = {};
    variable_list outputs, grads;
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (!grad_outputs[i].defined() || !run.outputs[i].requires_grad()) continue;
      outputs.push_back(run.outputs[i]);
      grads.push_back(grad_outputs[i]);
    }
    variable_list leaf_grads(run.leaves.size());
    if (!outputs.empty()) {
      leaf_grads = torch::autograd::grad(outputs, run.leaves, grads, /*retain_graph=*/false, /*create_graph=*/false,
                                         /*allow_unused=*/true);
    }
    // One entry per forward argument: x, the wanted slots, the state.
    variable_list result;
    size_t next = 0;
    result.push_back(state.wanted[0] ? leaf_grads[next++] : at::Tensor());
    while (next < leaf_grads.size()) result.push_back(leaf_grads[next++]);
    result.emplace_back();
    return result;
  }
};

}  // namespace

HalfOutput run_half(const HalfTask& task, const at::Tensor& x_TND, Recompute mode) {
  auto state = c10::make_intrusive<HalfState>();
  state->wanted.push_back(x_TND.requires_grad());
  std::vector<at::Tensor> wanted_slots;
  for (const at::Tensor& slot : task.slots) {
    state->wanted.push_back(slot.defined() && slot.requires_grad());
    if (state->wanted.back()) wanted_slots.push_back(slot);
  }
  const bool any = x_TND.requires_grad() || !wanted_slots.empty();
  if (!any || !at::GradMode::is_enabled()) return task.run(x_TND, task.slots);
  state->task = task;
  state->mode = mode;
  const variable_list results = HalfNode::apply(x_TND, at::TensorList(wanted_slots), state);
  return {results[0], results.size() > 1 ? results[1] : at::Tensor()};
}

}  // namespace asterism::model
