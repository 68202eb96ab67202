#include "asterism/parallel/sharded_model.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"
#include "asterism/parallel/slice_movement.h"
#include "tests/support/tiny_model.h"

namespace asterism::parallel {
namespace {

struct Shared {
  model::Model model;
  std::shared_ptr<ShardedModel> placement;
};

Shared share_tiny(const std::shared_ptr<dist::Transport>& transport, const MeshRequest& request) {
  Shared shared{testing::tiny_model(at::kDouble), nullptr};
  std::vector<TrainedTensor> trained;
  for (const auto& [name, leaf] : testing::record_gradients(shared.model)) trained.push_back({name, leaf});
  const auto world = std::make_shared<dist::Comm>(transport, "world");
  const auto comms = make_mesh_comms(world, make_mesh(transport->size(), request));
  shared.placement = ShardedModel::share(shared.model, trained, comms, {});
  return shared;
}

void run_pass(const Shared& shared, const std::vector<int64_t>& lengths) {
  const model::TokenBatch batch = testing::tiny_batch(shared.model.config, lengths);
  model::ForwardOptions options;
  options.compute = at::kDouble;
  model::forward_loss(shared.model, batch, options).token_loss.backward();
}

// Calls by kind, over all groups of a rank.
std::map<std::string, int64_t> calls_of(const MeshComms& comms) {
  std::map<std::string, int64_t> calls;
  for (const auto& comm : {comms.world, comms.shard, comms.replicate, comms.expert, comms.expert_shard}) {
    for (const auto& [name, traffic] : comm->traffic()) calls[name.substr(0, name.find(' '))] += traffic.calls;
  }
  return calls;
}

TEST(ShardedModel, CollectivesOfAPassFollowTheFormulaOnEveryRank) {
  dist::run_thread_ranks(4, [](const std::shared_ptr<dist::Transport>& transport) {
    const Shared shared = share_tiny(transport, {.expert = 2});
    // Rank 3 has no token and takes part in everything.
    run_pass(shared, transport->rank() == 3 ? std::vector<int64_t>{} : std::vector<int64_t>{6, 3});
    // docs/parallelism.md: with L layers, everything trained, and blocks recomputed.
    const int64_t layers = shared.model.config.num_layers();
    int64_t frozen = 0;  // units with frozen tensors as well: a gather of their own
    for (const auto& layer : shared.model.config.layers) {
      frozen += 1;                                                 // the router's bias or table
      frozen += layer.attention == model::AttentionKind::kSparse;  // only where an indexer is frozen
    }
    const auto calls = calls_of(shared.placement->comms());
    const int64_t units = 2 + 3 * layers;  // embedding, head; halves and experts of every layer
    EXPECT_EQ(calls.at("reduce_scatter"), units);
    EXPECT_EQ(calls.at("all_to_all"), layers * (1 + 3 + 3 + 3));
    const int64_t gathers = 2 + 2 * 3 * layers;
    EXPECT_GE(calls.at("all_gather"), gathers);
    EXPECT_LE(calls.at("all_gather"), gathers + 2 * frozen);
    // And the same, by name, on all ranks.
    std::string own;
    for (const auto& [kind, count] : calls) own += text(kind, " ", count, "\n");
    for (const std::string& other : shared.placement->comms().world->all_gather_text(own, "calls")) {
      EXPECT_EQ(other, own);
    }
  });
}

// The values of a model as it was.
class HeldModel : public model::SliceReader {
 public:
  HeldModel() : model_(testing::tiny_model(at::kDouble)) {
    model::for_each_named_slot(model_.config, model_.weights,
                               [&](const std::string& name, at::Tensor& slot) { tensors_[name] = slot; });
  }

  void read(const std::string& name, int64_t begin, const at::Tensor& out) override {
    names_ += name + "\n";
    read_held(tensors_.at(name), begin, out);
  }
  const at::Tensor& at(const std::string& name) const { return tensors_.at(name); }
  const std::string& names() const { return names_; }

 private:
  model::Model model_;
  std::map<std::string, at::Tensor> tensors_;
  std::string names_;
};

TEST(ShardedModel, CollectsWholeTensorsAndScattersThemAgain) {
  for (const MeshRequest& request : {MeshRequest{.expert = 4, .replicate = 2}, {.expert = 3, .shard = 6}, {}}) {
    const int ranks = request.shard > 0 ? request.shard : 4;
    dist::run_thread_ranks(ranks, [&](const std::shared_ptr<dist::Transport>& transport) {
      const Shared shared = share_tiny(transport, request);
      HeldModel original;
      const auto pieces = shared.placement->pieces();
      std::map<std::string, at::Tensor> wholes;
      for (const auto& [name, shape] : shared.placement->trained_shapes()) {
        wholes[name] = at::full(shape, NAN, at::kDouble);
      }
      shared.placement->collect([&](size_t i) { return pieces[i].value; },
                                [&](const std::string& name, int64_t begin, const at::Tensor& elements) {
                                  EXPECT_EQ(transport->rank(), 0);
                                  wholes.at(name).view({-1}).narrow(0, begin, elements.numel()).copy_(elements);
                                });
      for (const auto& [name, whole] : wholes) {
        if (transport->rank() == 0) {
          EXPECT_TRUE(at::equal(whole, original.at(name))) << name;
        }
      }
      std::vector<at::Tensor> again;
      for (const TrainedPiece& piece : pieces) again.push_back(at::full_like(piece.value, NAN));
      shared.placement->scatter(
          [&](size_t i) { return again[i]; },
          [&](const std::string& name, int64_t begin, const at::Tensor& out) { original.read(name, begin, out); });
      for (size_t i = 0; i < pieces.size(); ++i) EXPECT_TRUE(at::equal(again[i], pieces[i].value)) << pieces[i].name;
      // Ranks may read together: all ask for the same names.
      for (const std::string& names : shared.placement->comms().world->all_gather_text(original.names(), "names")) {
        EXPECT_EQ(names, original.names());
      }
    });
  }
}

// From outlines, read by every rank or by rank 0 for all, ranks get what they cut out of whole tensors.
TEST(ShardedModel, OutlinesAreReadIntoTheSameParts) {
  for (const bool streamed : {false, true}) {
    dist::run_thread_ranks(4, [&](const std::shared_ptr<dist::Transport>& transport) {
      const Shared expected = share_tiny(transport, {.expert = 2, .replicate = 2});
      Shared shared{testing::tiny_model(at::kDouble), nullptr};
      model::for_each_named_slot(shared.model.config, shared.model.weights, [](const std::string&, at::Tensor& slot) {
        slot = model::outline(slot.sizes(), slot.scalar_type());
      });
      std::vector<TrainedTensor> trained;
      for (const auto& [name, leaf] : testing::record_gradients(shared.model)) trained.push_back({name, leaf});
      HeldModel values;
      dist::Comm& world = *expected.placement->comms().world;
      StreamedSlices from_first(world, transport->rank() == 0 ? &values : nullptr);
      model::SliceReader& reader = streamed ? static_cast<model::SliceReader&>(from_first) : values;
      shared.placement = ShardedModel::share(shared.model, trained, expected.placement->comms(), {}, &reader);
      const auto own = shared.placement->pieces(), wanted = expected.placement->pieces();
      ASSERT_EQ(own.size(), wanted.size());
      for (size_t i = 0; i < own.size(); ++i) {
        EXPECT_EQ(own[i].name, wanted[i].name);
        EXPECT_TRUE(at::equal(own[i].value, wanted[i].value)) << own[i].name;
      }
      // Frozen tensors as well.
      for (int64_t layer = 0; layer < shared.model.config.num_layers(); ++layer) {
        const model::UnitId id{model::UnitKind::kMoe, layer};
        const auto a = shared.placement->unit(id)->gather(), b = expected.placement->unit(id)->gather();
        for (size_t i = 0; i < a.size(); ++i) {
          ASSERT_EQ(a[i].defined(), b[i].defined());
          if (a[i].defined()) {
            EXPECT_TRUE(at::equal(a[i].detach(), b[i].detach())) << layer << " " << i;
          }
        }
      }
    });
  }
}

TEST(ShardedModel, ARankHoldsItsShare) {
  dist::run_thread_ranks(4, [](const std::shared_ptr<dist::Transport>& transport) {
    const Shared shared = share_tiny(transport, {.expert = 2});
    const auto whole = static_cast<double>(shared.placement->whole_bytes());
    // Parts are rounded up to 64 bytes and tensors begin at multiples of 64 bytes: much, in a model as tiny as this.
    EXPECT_LT(static_cast<double>(shared.placement->resident_bytes()), 0.25 * whole + 64.0 * 400);
    model::Weights weights = shared.model.weights;
    EXPECT_FALSE(weights.embed.defined());
    EXPECT_FALSE(weights.layers[0].moe.moe.gate_up.weight.defined());
  });
}

TEST(ShardedModel, ATensorWithoutAGradientOnAnyRankHasNone) {
  dist::run_thread_ranks(2, [](const std::shared_ptr<dist::Transport>& transport) {
    const Shared shared = share_tiny(transport, {});
    // Nothing trains the indexers: their loss is off.
    run_pass(shared, transport->rank() == 0 ? std::vector<int64_t>{2} : std::vector<int64_t>{30});
    shared.placement->finish_gradients();
    int64_t with_gradient = 0, without = 0;
    for (const TrainedPiece& piece : shared.placement->pieces()) {
      (piece.grad.defined() ? with_gradient : without) += 1;
      if (piece.name.find(".indexer.") != std::string::npos) {
        EXPECT_FALSE(piece.grad.defined()) << piece.name;
      }
    }
    // A piece lies on one rank: the indexers' may all be on the other one.
    const at::Tensor counts = at::tensor({with_gradient, without}, at::kLong);
    shared.placement->comms().world->all_reduce(counts, dist::Reduction::kSum, "test");
    EXPECT_GT(counts[0].item<int64_t>(), 0);
    EXPECT_GT(counts[1].item<int64_t>(), 0);
    shared.placement->drop_gradients();
    for (const TrainedPiece& piece : shared.placement->pieces()) EXPECT_FALSE(piece.grad.defined());
  });
}

TEST(ShardedModel, AMeshOfAnotherSizeIsRefused) {
  const auto transports = dist::make_thread_transports(1);
  const auto world = std::make_shared<dist::Comm>(transports[0], "world");
  EXPECT_THROW(make_mesh_comms(world, make_mesh(2, {})), c10::Error);
}

}  // namespace
}  // namespace asterism::parallel
