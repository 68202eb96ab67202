#include "tests/parallel/shared_run.h"

#include <gtest/gtest.h>

#include <mutex>

#include "asterism/dist/thread_transport.h"
#include "asterism/model/lora.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/parallel/sharded_model.h"
#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::testing {

namespace {

using Leaves = std::vector<std::pair<std::string, at::Tensor>>;

model::Config config_of(const SharedCase& what) {
  nlohmann::ordered_json json = tiny_config_json();
  if (what.num_experts > 0) json["n_routed_experts"] = what.num_experts;
  return model::parse_config(json, "test");
}

void pack_some(model::Model& model) {
  model::for_each_projection(model.config, model.weights, [](const model::TensorSpec& spec, model::Projection& p) {
    const bool experts = spec.name.find("mlp.experts.") != std::string::npos;
    if (!experts && spec.name.find("q_b_proj") == std::string::npos) return;
    const int64_t parts = spec.name.ends_with("gate_up_proj") ? 2 : 1;
    p.weight = ops::pack(p.weight.plain, ops::PackedFormat::kFp8, experts ? at::kByte : at::kFloat, parts);
  });
}

Leaves lora_leaves(model::Model& model) {
  model::LoraConfig lora;
  lora.rank = 3;
  lora.targets = {"attention", "shared_experts", "experts"};
  model::attach_lora(model.config, model.weights, lora, /*seed=*/5);
  Leaves leaves;
  model::for_each_projection(model.config, model.weights, [&](const model::TensorSpec& spec, model::Projection& p) {
    if (!p.lora) return;
    const at::Tensor b = p.lora->b_NR;
    p.lora->b_NR = random_tensor(b.sizes(), spec.name, 0.1).to(b.scalar_type());
    p.lora->a_RK.requires_grad_(true);
    p.lora->b_NR.requires_grad_(true);
    leaves.emplace_back(spec.name + ".A", p.lora->a_RK);
    leaves.emplace_back(spec.name + ".B", p.lora->b_NR);
  });
  return leaves;
}

struct Setup {
  model::Model model;
  Leaves leaves;
};

Setup make_setup(const SharedCase& what) {
  Setup setup{tiny_model(config_of(what), what.type), {}};
  if (what.packed) pack_some(setup.model);
  if (what.all_to_one_expert) {
    for (auto& layer : setup.model.weights.layers) {
      at::Tensor& bias = layer.moe.moe.bias;
      if (bias.defined()) bias = at::arange(bias.size(0), 0, -1, at::kLong).to(bias.scalar_type()) * 100.0;
    }
  }
  setup.leaves = what.lora ? lora_leaves(setup.model) : record_gradients(setup.model);
  return setup;
}

model::TokenBatch batch_of(const SharedCase& what, const model::Config& config, size_t index) {
  if (index >= what.micro_batches.size()) return tiny_batch(config, {});
  model::TokenBatch batch = tiny_batch(config, what.micro_batches[index], /*seed=*/100 + index);
  if (static_cast<int64_t>(index) == what.untrained_micro_batch) batch.target_T.fill_(ops::kIgnoredTarget);
  return batch;
}

int64_t trained_tokens(const SharedCase& what, const model::Config& config) {
  int64_t count = 0;
  for (size_t i = 0; i < what.micro_batches.size(); ++i) count += batch_of(what, config, i).trained_tokens();
  return count;
}

double run_micro_batch(const SharedCase& what, const model::Model& model, size_t index, int64_t count) {
  model::ForwardOptions forward;
  forward.compute = what.type;
  model::LossOptions options;
  options.recompute = what.recompute;
  const model::LossSums sums = model::forward_loss(model, batch_of(what, model.config, index), forward, options);
  const at::Tensor loss = sums.token_loss / static_cast<double>(count);
  loss.backward();
  return loss.item<double>();
}

// Copies of the model have the same bits.
void expect_equal_copies(const parallel::ShardedModel& shared, const parallel::ShardedModel::OfPiece& values) {
  const auto pieces = shared.pieces();
  dist::Comm& copies = *shared.comms().replicate;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].is_expert) continue;
    const at::Tensor own = values(i).contiguous();
    const at::Tensor all = at::empty({copies.size(), own.numel()}, own.options());
    copies.all_gather(all, own, "copies of " + pieces[i].name);
    for (int r = 0; r < copies.size(); ++r) {
      EXPECT_TRUE(at::equal(all[r], own)) << pieces[i].name << " differs between copies";
    }
  }
}

}  // namespace

SharedResult run_alone(const SharedCase& what) {
  const Setup setup = make_setup(what);
  const int64_t count = trained_tokens(what, setup.model.config);
  SharedResult result;
  for (size_t i = 0; i < what.micro_batches.size(); ++i) {
    result.loss += run_micro_batch(what, setup.model, i, count);
  }
  for (const auto& [name, leaf] : setup.leaves) {
    if (leaf.grad().defined()) result.gradients[name] = leaf.grad();
  }
  return result;
}

SharedResult run_shared(const SharedCase& what, int ranks, const parallel::MeshRequest& request) {
  SharedResult result;
  std::mutex mutex;
  std::vector<double> losses(what.micro_batches.size(), 0.0);
  const auto body = [&](const std::shared_ptr<dist::Transport>& transport) {
    const auto world = std::make_shared<dist::Comm>(transport, "world");
    Setup setup = make_setup(what);
    const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(ranks, request));
    std::vector<parallel::TrainedTensor> trained;
    for (const auto& [name, leaf] : setup.leaves) trained.push_back({name, leaf});
    const auto shared = parallel::ShardedModel::share(setup.model, trained, comms, {.strict = what.strict});
    setup.leaves.clear();
    const int64_t count = trained_tokens(what, setup.model.config);
    const size_t rounds = (what.micro_batches.size() + ranks - 1) / ranks;
    for (size_t round = 0; round < rounds; ++round) {
      const size_t index = round * ranks + world->rank();
      const double loss = run_micro_batch(what, setup.model, index, count);
      if (index < losses.size()) losses[index] = loss;
    }
    shared->finish_gradients();
    const auto pieces = shared->pieces();
    std::map<std::string, at::Tensor> gradients;
    std::map<std::string, bool> defined;
    for (const auto& piece : pieces) defined[piece.name] = piece.grad.defined();
    const auto gradient_of = [&](size_t i) {
      return pieces[i].grad.defined() ? pieces[i].grad : at::zeros_like(pieces[i].value);
    };
    for (const auto& [name, shape] : shared->trained_shapes()) {
      if (world->rank() == 0) gradients[name] = at::full(shape, NAN, shared->trained_type());
    }
    shared->collect(gradient_of, [&](const std::string& name, int64_t begin, const at::Tensor& elements) {
      gradients[name].view({-1}).narrow(0, begin, elements.numel()).copy_(elements);
    });
    expect_equal_copies(*shared, gradient_of);
    // A piece that lies elsewhere tells whether there is a gradient.
    const auto all = world->all_gather_text(
        [&] {
          std::string names;
          for (const auto& [name, has] : defined) names += has ? name + "\n" : "";
          return names;
        }(),
        "names");
    const std::scoped_lock lock(mutex);
    for (const auto& [name, gradient] : gradients) {
      bool any = false;
      for (const std::string& names : all) any = any || ("\n" + names).find("\n" + name + "\n") != std::string::npos;
      if (!any) continue;
      result.gradients[name] = gradient;
    }
  };
  dist::run_thread_ranks(ranks, body);
  for (const double loss : losses) result.loss += loss;
  return result;
}

}  // namespace asterism::testing
