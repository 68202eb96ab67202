#include "asterism/model/recompute.h"

#include <torch/csrc/autograd/autograd.h>

namespace asterism::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// One run of the unit on fresh leaves, with its private graph.
struct RecordedRun {
  variable_list leaves;        // those of (x, slots) that want a gradient
  std::vector<size_t> places;  // of the leaves: 0 is x, i + 1 slot i
  variable_list outputs;       // x and, when there is one, the auxiliary loss
};

RecordedRun record(const UnitTask& task, const at::Tensor& x_TND, const std::vector<at::Tensor>& values,
                   ops::KeptResults& kept) {
  const at::AutoGradMode recording(true);
  RecordedRun run;
  const auto leaf = [&](const at::Tensor& value, bool want, size_t place) {
    if (!value.defined() || !want) return value.defined() ? value.detach() : value;
    run.leaves.push_back(value.detach().requires_grad_(true));
    run.places.push_back(place);
    return run.leaves.back();
  };
  // With a source, nodes inside the unit may hold trained tensors that autograd does not see: all are reached through
  // x, whose gradient is therefore always computed.
  const at::Tensor x_leaf = leaf(x_TND, task.source != nullptr || x_TND.requires_grad(), 0);
  std::vector<at::Tensor> slots;
  for (size_t i = 0; i < values.size(); ++i) {
    slots.push_back(leaf(values[i], values[i].defined() && values[i].requires_grad(), i + 1));
  }
  const UnitOutput output = task.run(x_leaf, slots, kept);
  run.outputs.push_back(output.x_TND);
  if (output.auxiliary.defined()) run.outputs.push_back(output.auxiliary);
  return run;
}

// What the node keeps besides its saved input: lives in the context as a capsule.
struct UnitState : torch::CustomClassHolder {
  UnitState(const UnitTask& unit, Recompute recompute)
      : task(unit), mode(recompute), kept(recompute == Recompute::kSelective) {}

  UnitTask task;
  Recompute mode;
  ops::KeptResults kept;
  std::vector<size_t> inputs;  // places of the slots that are inputs of the node
  RecordedRun run;             // kNone only
  size_t num_slots = 0;
  bool anchored = false;  // the last input is the source's anchor

  std::vector<at::Tensor> slots() const { return task.source ? task.source->gather() : task.slots; }
};

struct UnitNode : Function<UnitNode> {
  // Inputs: x, then the slots that want a gradient or the source's anchor.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_TND, at::TensorList /*inputs*/,
                               const c10::intrusive_ptr<UnitState>& state) {
    variable_list results;
    const std::vector<at::Tensor> slots = state->slots();
    state->num_slots = slots.size();
    if (state->mode == Recompute::kNone) {
      state->run = record(state->task, x_TND, slots, state->kept);
      for (const at::Tensor& output : state->run.outputs) results.push_back(output.detach());
    } else {
      const UnitOutput output = state->task.run(x_TND, slots, state->kept);
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
    auto& state = static_cast<UnitState&>(*capsule);
    RecordedRun run = state.mode == Recompute::kNone
                          ? std::move(state.run)
                          : record(state.task, ctx->get_saved_variables()[0], state.slots(), state.kept);
    TORCH_CHECK(!run.outputs.empty(), "[recompute] the backward pass of a unit was asked for twice");
    state.run = {};
    // By place: of x, then of every slot.
    variable_list grads(1 + state.num_slots);
    const variable_list leaf_grads = gradients_of(run, grad_outputs);
    for (size_t i = 0; i < leaf_grads.size(); ++i) grads[run.places[i]] = leaf_grads[i];
    run = {};  // before gradients are sent: their memory may be needed
    if (state.task.source) state.task.source->add_gradients({grads.begin() + 1, grads.end()});
    // One entry per forward argument: x, the inputs, the state.
    variable_list result{ctx->needs_input_grad(0) ? grads[0] : at::Tensor()};
    for (const size_t place : state.inputs) result.push_back(grads[place]);
    if (state.anchored) result.emplace_back();
    result.emplace_back();
    return result;
  }

 private:
  static variable_list gradients_of(const RecordedRun& run, const variable_list& grad_outputs) {
    variable_list outputs, grads;
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (!grad_outputs[i].defined() || !run.outputs[i].requires_grad()) continue;
      outputs.push_back(run.outputs[i]);
      grads.push_back(grad_outputs[i]);
    }
    if (outputs.empty()) return variable_list(run.leaves.size());
    return torch::autograd::grad(outputs, run.leaves, grads, /*retain_graph=*/false, /*create_graph=*/false,
                                 /*allow_unused=*/true);
  }
};

}  // namespace

UnitOutput run_unit(const UnitTask& task, const at::Tensor& x_TND, Recompute mode) {
  auto state = c10::make_intrusive<UnitState>(task, mode);
  variable_list inputs;
  if (task.source) {
    const at::Tensor anchor = task.source->anchor();
    state->anchored = anchor.defined();
    if (state->anchored) inputs.push_back(anchor);
  }
  for (size_t i = 0; i < task.slots.size(); ++i) {
    if (!task.slots[i].defined() || !task.slots[i].requires_grad()) continue;
    inputs.push_back(task.slots[i]);
    state->inputs.push_back(i + 1);
  }
  const bool any = x_TND.requires_grad() || !inputs.empty();
  if (!any || !at::GradMode::is_enabled()) {
    ops::KeptResults nothing(/*wanted=*/false);
    return task.run(x_TND, state->slots(), nothing);
  }
  const variable_list results = UnitNode::apply(x_TND, at::TensorList(inputs), state);
  return {results[0], results.size() > 1 ? results[1] : at::Tensor()};
}

}  // namespace asterism::model
