#include "tests/train/layout_run.h"

#include <gtest/gtest.h>

#include <mutex>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/model/lora.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/train/step.h"
#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::testing {

namespace {

using train::Parameter;

model::Config layout_config(const LayoutCase& what) {
  nlohmann::ordered_json json = tiny_config_json();
  json["n_routed_experts"] = what.num_experts;
  if (what.routers == LayoutCase::Routers::kLearned) json["num_hash_layers"] = 0;
  if (what.routers == LayoutCase::Routers::kHash) json["num_hash_layers"] = json["num_hidden_layers"];
  return model::parse_config(json, "layout");
}

void send_all_to_the_first_experts(model::Model& model) {
  const int64_t slots = model.config.experts_per_token;
  for (auto& layer : model.weights.layers) {
    auto& moe = layer.moe.moe;
    if (moe.bias.defined()) {
      moe.bias = at::arange(moe.bias.size(0), 0, -1, at::kLong).to(moe.bias.scalar_type()) * 100.0;
    }
    if (moe.tid2eid.defined())
      moe.tid2eid = at::arange(slots, moe.tid2eid.options()).expand_as(moe.tid2eid).contiguous();
  }
}

struct LayoutSetup {
  model::Model model;
  std::vector<Parameter> parameters;
};

LayoutSetup make_layout_setup(const LayoutCase& what) {
  LayoutSetup setup{tiny_model(layout_config(what), what.type), {}};
  model::Model& model = setup.model;
  if (what.all_to_one_expert) send_all_to_the_first_experts(model);
  if (!what.lora) {
    setup.parameters = train::full_parameters(model, {.indexer = what.indexer_kl});
    return setup;
  }
  model::LoraConfig lora;
  lora.rank = 3;
  lora.targets = {"attention", "shared_experts", "experts"};
  model::attach_lora(model.config, model.weights, lora, /*seed=*/5);
  model::for_each_projection(model.config, model.weights, [&](const model::TensorSpec& spec, model::Projection& p) {
    if (!p.lora) return;
    p.lora->a_RK = p.lora->a_RK.to(what.type);
    const double scale = what.fresh_pairs ? 0.0 : 0.1;
    p.lora->b_NR = random_tensor(p.lora->b_NR.sizes(), spec.name, scale).to(what.type);
  });
  setup.parameters = train::lora_parameters(model);
  return setup;
}

std::vector<data::PackedRow> rows_of(const LayoutCase& what) {
  std::vector<data::PackedRow> rows;
  uint64_t document = 0;
  for (size_t r = 0; r < what.rows.size(); ++r) {
    data::PackedRow row;
    row.lengths = what.rows[r];
    for (const int64_t length : row.lengths) {
      const RandomStream stream(document++, "layout");
      for (int64_t t = 0; t < length; ++t) {
        row.ids.push_back(static_cast<int64_t>(stream.below(97, static_cast<uint64_t>(t))));
        const bool trained = static_cast<int64_t>(r) != what.untrained_row && t % 4 != 1;
        row.weights.push_back(trained ? 1.0F : 0.0F);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Micro-batches go to the ranks in turn, as the loader deals them.
std::vector<data::PackedRow> rows_of_rank(const LayoutCase& what, int rank, int ranks) {
  const std::vector<data::PackedRow> all = rows_of(what);
  std::vector<data::PackedRow> own;
  for (size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int64_t>(r) / what.micro_batch % ranks == rank) own.push_back(all[r]);
  }
  return own;
}

// A tensor like a parameter, or undefined.
using ParameterValue = std::function<at::Tensor(size_t parameter)>;
// Adds the values of all parameters, whole, to the result.
using Collect = std::function<void(LayoutResult& result, const std::string& kind, const ParameterValue& value)>;

LayoutResult run_steps(const LayoutCase& what, const model::Model& model, const std::vector<Parameter>& parameters,
                       const std::vector<data::PackedRow>& rows, parallel::ShardedModel* shared,
                       const Collect& collect) {
  train::StepSettings settings;
  settings.forward.compute = what.type;
  settings.forward.indexer_kl = what.indexer_kl;
  settings.forward.balance = what.balance_weight > 0.0;
  settings.balance_weight = what.balance_weight;
  settings.micro_batch = what.micro_batch;
  train::AdamW optimizer(parameters, what.optimizer);
  LayoutResult result;
  result.tensors["losses"] = at::zeros({what.steps, 4}, at::kDouble);
  for (int64_t step = 0; step < what.steps; ++step) {
    const train::StepResult done = run_step(model, rows, settings, shared);
    if (shared != nullptr) train::take_gradients(parameters, *shared);
    if (step == 0) collect(result, "gradient.", [&](size_t i) { return parameters[i].value.grad(); });
    const double norm =
        shared != nullptr ? train::inspect_gradients(*shared).norm : train::inspect_gradients(parameters).norm;
    result.tensors["losses"][step] = at::tensor({done.loss, done.balance_loss, done.indexer_loss, norm}, at::kDouble);
    optimizer.step(what.optimizer.lr, train::clip_factor(norm, what.optimizer.clip_norm));
    if (shared != nullptr) shared->drop_gradients();
  }
  collect(result, "weight.", [&](size_t i) { return parameters[i].value.detach(); });
  collect(result, "exp_avg.", [&](size_t i) { return optimizer.states()[i].exp_avg; });
  collect(result, "exp_avg_sq.", [&](size_t i) { return optimizer.states()[i].exp_avg_sq; });
  return result;
}

}  // namespace

LayoutResult run_layout_alone(const LayoutCase& what) {
  const LayoutSetup setup = make_layout_setup(what);
  const auto collect = [&](LayoutResult& result, const std::string& kind, const ParameterValue& value) {
    for (size_t i = 0; i < setup.parameters.size(); ++i) {
      const at::Tensor tensor = value(i);
      result.tensors[kind + setup.parameters[i].name] =
          tensor.defined() ? tensor.clone() : at::zeros_like(setup.parameters[i].value.detach());
    }
  };
  return run_steps(what, setup.model, setup.parameters, rows_of(what), nullptr, collect);
}

LayoutResult run_layout(const LayoutCase& what, const parallel::MeshRequest& mesh,
                        const std::shared_ptr<dist::Transport>& transport) {
  LayoutSetup setup = make_layout_setup(what);
  const auto world = std::make_shared<dist::Comm>(transport, "world");
  const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(world->size(), mesh));
  const train::SharedParameters shared =
      train::share_parameters(setup.model, std::move(setup.parameters), comms, what.strict);
  const auto collect = [&](LayoutResult& result, const std::string& kind, const ParameterValue& value) {
    const auto piece_of = [&](size_t i) {
      const at::Tensor piece = value(i);
      return piece.defined() ? piece : at::zeros_like(shared.parameters[i].value.detach());
    };
    for (const auto& [name, shape] : shared.model->trained_shapes()) {
      result.tensors[kind + name] = at::full(shape, NAN, shared.model->trained_type());
    }
    shared.model->collect(piece_of, [&](const std::string& name, int64_t begin, const at::Tensor& elements) {
      result.tensors[kind + name].view({-1}).narrow(0, begin, elements.numel()).copy_(elements);
    });
    for (const auto& [name, shape] : shared.model->trained_shapes()) {
      world->broadcast(result.tensors[kind + name], 0, name + ": for the test");
    }
    // What rank 0 has collected is what every rank has of it, copies of the model included.
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < shared.parameters.size(); ++i) parts.push_back(at::empty_like(piece_of(i)));
    shared.model->scatter([&](size_t i) { return parts[i]; },
                          [&](const std::string& name, int64_t begin, const at::Tensor& out) {
                            parallel::read_held(result.tensors.at(kind + name), begin, out);
                          });
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(at::equal(parts[i], piece_of(i))) << kind << shared.parameters[i].name << " differs between ranks";
    }
  };
  return run_steps(what, setup.model, shared.parameters, rows_of_rank(what, world->rank(), world->size()),
                   shared.model.get(), collect);
}

LayoutResult run_layout_threads(const LayoutCase& what, int ranks, const parallel::MeshRequest& mesh) {
  std::mutex mutex;
  std::vector<LayoutResult> results(ranks);
  dist::run_thread_ranks(ranks, [&](const std::shared_ptr<dist::Transport>& transport) {
    LayoutResult result = run_layout(what, mesh, transport);
    const std::scoped_lock lock(mutex);
    results[transport->rank()] = std::move(result);
  });
  for (const LayoutResult& result : results) {
    for (const auto& [name, tensor] : results[0].tensors) {
      EXPECT_TRUE(at::equal(result.tensors.at(name), tensor)) << name << " differs between ranks";
    }
  }
  return results[0];
}

const std::map<std::string, LayoutCase>& named_layout_cases() {
  // Small steps and no tiny denominators: where a gradient nearly cancels, Adam would make of its rounding a whole
  // step.
  const train::OptimizerSection calm{.lr = 1e-4, .eps = 1e-4, .weight_decay = 0.1, .clip_norm = 1.0};
  LayoutCase full{.type = at::kFloat, .balance_weight = 0.02, .indexer_kl = true, .optimizer = calm};
  LayoutCase lora{.type = at::kFloat, .lora = true, .micro_batch = 2, .optimizer = calm};
  LayoutCase strict_full = full, strict_lora = lora;
  strict_full.strict = strict_lora.strict = true;
  static const std::map<std::string, LayoutCase> cases = {
      {"full", full}, {"lora", lora}, {"strict-full", strict_full}, {"strict-lora", strict_lora}};
  return cases;
}

}  // namespace asterism::testing
