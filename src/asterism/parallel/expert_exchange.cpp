#include "asterism/parallel/expert_exchange.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace asterism::parallel {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

ShardedTensors shard_experts(const std::string& name, const ExpertWeights& all, int num_experts,
                             const ExpertRange& range, const dist::Comm& group, const ExpertExchange::ReadSlice& read) {
  const std::vector<at::Tensor> slots = expert_slots(all);
  const auto fill = [&](size_t slot, int64_t begin, const at::Tensor& out) {
    read_experts(slots[slot].sizes(), is_interleaved(slot), num_experts, range, begin, out,
                 [&](int64_t first, const at::Tensor& part) { read(slots[slot], first, part); });
  };
  return {name, outlines_of_experts(all, num_experts, range), group.rank(), group.size(), fill};
}

at::Tensor empty_rows(const std::vector<int64_t>& counts, const at::Tensor& like) {
  std::vector<int64_t> shape = like.sizes().vec();
  shape[0] = 0;
  for (const int64_t count : counts) shape[0] += count;
  return at::empty(shape, like.options());
}

}  // namespace

ExpertExchange::ExpertExchange(std::string name, const ExpertWeights& all, int num_experts, const Groups& groups,
                               bool strict, const ReadSlice& read)
    : name_(std::move(name)),
      num_experts_(num_experts),
      groups_(groups),
      strict_(strict),
      range_(expert_range(num_experts, groups.expert->rank(), groups.expert->size())),
      outline_(outline_of(all)),
      tensors_(shard_experts(name_, all, num_experts, range_, *groups.expert_shard, read)) {}

ExpertExchange::Arriving ExpertExchange::start_send(const TokenRoutes& routes, const at::Tensor& rows,
                                                    const char* what) {
  const at::Tensor received = empty_rows(routes.receive_rows, rows);
  return {received, groups_.expert->start_all_to_all(received, rows.contiguous(), routes.receive_rows, routes.send_rows,
                                                     text(name_, ": ", what))};
}

at::Tensor ExpertExchange::send_back(const TokenRoutes& routes, const at::Tensor& rows, const char* what) {
  const at::Tensor returned = empty_rows(routes.send_rows, rows);
  groups_.expert->all_to_all(returned, rows.contiguous(), routes.send_rows, routes.receive_rows,
                             text(name_, ": ", what));
  return returned;
}

ExpertExchange::LocalRun ExpertExchange::compute(const TokenRoutes& routes, const at::Tensor& x_RD,
                                                 const at::Tensor& weight_R, double limit, bool recording) {
  const at::AutoGradMode mode(recording);
  const std::vector<at::Tensor> whole = tensors_.gather(*groups_.expert_shard);
  LocalRun run;
  run.x_RD = x_RD.detach().requires_grad_(recording);
  run.weight_R = weight_R.detach().requires_grad_(recording);
  for (const TokenRoutes::Call& call : routes.calls) {
    std::vector<at::Tensor> slots;
    for (const at::Tensor& tensor : whole) {
      slots.push_back(tensor.defined() ? tensor.detach().requires_grad_(recording && tensor.requires_grad()) : tensor);
    }
    const ExpertWeights experts = with_expert_slots(outline_, slots);
    const at::Tensor x = run.x_RD.narrow(0, call.first_row, call.rows);
    const at::Tensor weight_R1 = run.weight_R.narrow(0, call.first_row, call.rows).unsqueeze(1);
    run.outputs.push_back(ops::grouped_experts(x, weight_R1, call.dispatch, experts.gate_up.weight, experts.down.weight,
                                               limit, experts.gate_up.lora, experts.down.lora));
    run.slots.push_back(std::move(slots));
  }
  return run;
}

std::pair<at::Tensor, at::Tensor> ExpertExchange::differentiate(const LocalRun& run, const TokenRoutes& routes,
                                                                const at::Tensor& grad_RD) {
  at::Tensor grad_x_RD = at::zeros_like(run.x_RD), grad_weight_R = at::zeros_like(run.weight_R);
  std::vector<std::vector<at::Tensor>> contributions;
  for (size_t c = 0; c < routes.calls.size(); ++c) {
    const TokenRoutes::Call& call = routes.calls[c];
    variable_list leaves{run.x_RD, run.weight_R};
    std::vector<size_t> places;
    for (size_t i = 0; i < run.slots[c].size(); ++i) {
      if (!run.slots[c][i].defined() || !run.slots[c][i].requires_grad()) continue;
      leaves.push_back(run.slots[c][i]);
      places.push_back(i);
    }
    const variable_list grads = torch::autograd::grad(
        {run.outputs[c]}, leaves, {grad_RD.narrow(0, call.first_row, call.rows)}, /*retain_graph=*/false,
        /*create_graph=*/false, /*allow_unused=*/true);
    // Calls are of different rows: each fills its own.
    grad_x_RD.narrow(0, call.first_row, call.rows).copy_(grads[0].narrow(0, call.first_row, call.rows));
    grad_weight_R.narrow(0, call.first_row, call.rows).copy_(grads[1].narrow(0, call.first_row, call.rows));
    contributions.emplace_back(run.slots[c].size());
    for (size_t i = 0; i < places.size(); ++i) contributions.back()[places[i]] = grads[2 + i];
  }
  if (contributions.empty()) contributions.emplace_back(expert_slots(outline_).size());
  tensors_.add_gradients(*groups_.expert_shard, contributions);
  return {grad_x_RD, grad_weight_R};
}

// What one pass keeps for its backward.
struct ExchangeState : torch::CustomClassHolder {
  ExpertExchange* exchange = nullptr;
  std::shared_ptr<const TokenRoutes> routes;
  double limit = 0.0;
  bool recording = false;
  ExpertExchange::Arriving x_RD, weight_R;
  ExpertExchange::LocalRun run;
};

// Inputs: y [T, D], weights of the slots [T, K]; their values are on their way already.
struct ExchangeNode : torch::autograd::Function<ExchangeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*y_TD*/, const at::Tensor& /*weight_TK*/,
                            const c10::intrusive_ptr<ExchangeState>& state) {
    ExpertExchange& exchange = *state->exchange;
    const TokenRoutes& routes = *state->routes;
    const at::Tensor x_RD = state->x_RD.wait();
    state->run = exchange.compute(routes, x_RD, state->weight_R.wait(), state->limit, state->recording);
    state->x_RD = {};
    state->weight_R = {};
    at::Tensor out_RD = at::empty_like(x_RD);
    for (size_t c = 0; c < routes.calls.size(); ++c) {
      out_RD.narrow(0, routes.calls[c].first_row, routes.calls[c].rows).copy_(state->run.outputs[c].detach());
    }
    if (!state->recording) state->run = {};
    ctx->saved_data["state"] =
        c10::IValue::make_capsule(c10::static_intrusive_pointer_cast<torch::CustomClassHolder>(state));
    return ops::combine_rows(exchange.send_back(routes, out_RD, "results"), routes.outgoing.row_TK);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["state"].toCapsule();
    auto& state = static_cast<ExchangeState&>(*capsule);
    ExpertExchange& exchange = *state.exchange;
    const TokenRoutes& routes = *state.routes;
    const ops::Dispatch& outgoing = routes.outgoing;
    const at::Tensor grad_rows = grads[0].to(state.run.x_RD.scalar_type()).index_select(0, outgoing.token_R);
    const at::Tensor grad_RD = exchange.start_send(routes, grad_rows, "gradients of results").wait();
    const auto [grad_x_RD, grad_weight_R] = exchange.differentiate(state.run, routes, grad_RD);
    state.run = {};
    const at::Tensor grad_y_RD = exchange.send_back(routes, grad_x_RD, "gradients of tokens");
    const at::Tensor returned_R = exchange.send_back(routes, grad_weight_R, "gradients of weights");
    const at::Tensor grad_weight_TK = at::empty(outgoing.row_TK.sizes(), returned_R.options());
    grad_weight_TK.view({-1}).index_copy_(0, outgoing.slot_R, returned_R);
    return {ops::combine_rows(grad_y_RD, outgoing.row_TK), grad_weight_TK, at::Tensor()};
  }
};

at::Tensor ExpertExchange::run(const model::ExpertCall& call, model::LayerDecisions& decisions) {
  if (!decisions.exchange) {
    decisions.exchange = std::make_shared<const TokenRoutes>(
        make_token_routes(decisions.expert_TK, num_experts_, strict_, *groups_.expert, name_));
  }
  const auto state = c10::make_intrusive<ExchangeState>();
  state->exchange = this;
  state->routes = std::static_pointer_cast<const TokenRoutes>(decisions.exchange);
  state->limit = call.limit;
  state->recording = at::GradMode::is_enabled();
  {
    const at::NoGradGuard no_grad;
    const ops::Dispatch& outgoing = state->routes->outgoing;
    state->x_RD = start_send(*state->routes, call.y_TD.index_select(0, outgoing.token_R), "tokens");
    state->weight_R =
        start_send(*state->routes, call.weight_TK.reshape({-1}).index_select(0, outgoing.slot_R), "weights of tokens");
  }
  if (call.meanwhile) call.meanwhile();
  return ExchangeNode::apply(call.y_TD, call.weight_TK, state);
}

}  // namespace asterism::parallel
