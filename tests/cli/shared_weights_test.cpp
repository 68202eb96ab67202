#include "asterism/cli/shared_weights.h"

#include <gtest/gtest.h>

#include "asterism/checkpoint/peft.h"
#include "asterism/cli/session.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/parallel/slice_movement.h"
#include "asterism/train/shared_parameters.h"
#include "tests/cli/training_files.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;

train::Recipe recipe_for(const TrainingFiles& files, const std::string& adapter) {
  train::Recipe recipe;
  recipe.model.path = files / "model";
  recipe.lora.emplace();
  recipe.lora->from = adapter;
  return recipe;
}

// An adapter of the model whose values all differ, and a router that was trained with it.
void write_some_adapter(const TrainingFiles& files, const fs::path& folder, checkpoint::AdapterLayout layout) {
  model::Model model = load_model(files / "model", train::Storage::kFp32);
  model::LoraConfig lora{.rank = 2, .targets = {"experts", "attention"}, .modules_to_save = {"mlp.gate"}};
  model::attach_lora(model.config, model.weights, lora, 7);
  model::for_each_named_slot(model.config, model.weights, [](const std::string& name, at::Tensor& slot) {
    const bool changed = name.find(".lora_B") != std::string::npos || name.find("mlp.gate.") != std::string::npos;
    if (changed && slot.is_floating_point()) slot = at::arange(slot.numel(), at::kFloat).view(slot.sizes()) * 0.01;
  });
  checkpoint::write_adapter(folder, model.config, model.weights, lora, "", /*replace=*/true, layout);
}

TEST(SharedWeights, ReadTheAdapterThatARunStartsFrom) {
  const TrainingFiles files;
  for (const auto layout : {checkpoint::AdapterLayout::kPeft, checkpoint::AdapterLayout::kPerExpert}) {
    write_some_adapter(files, files / "adapter", layout);
    const train::Recipe recipe = recipe_for(files, files / "adapter");
    model::Model expected = load_model(recipe.model.path, recipe.model.storage, recipe.lora->from);
    SharedWeights weights(recipe);
    model::Model model = weights.outlines();
    checkpoint::load_adapter(recipe.lora->from, model.config, model.weights);
    weights.hold(model, recipe.lora->from);
    std::map<std::string, at::Tensor> values;
    model::for_each_named_slot(expected.config, expected.weights,
                               [&](const std::string& name, at::Tensor& slot) { values[name] = slot; });
    size_t slots = 0;
    for (const bool dropped : {false, true}) {
      if (dropped) weights.drop_trained();
      model::for_each_named_slot(model.config, model.weights, [&](const std::string& name, at::Tensor& slot) {
        ASSERT_TRUE(slot.is_meta()) << name;
        // What adapters still need of the base after that.
        if (dropped && name.find("e_score_correction_bias") == std::string::npos) return;
        const at::Tensor out = at::empty(slot.sizes(), slot.scalar_type());
        weights.read(name, 0, out.view({-1}));
        EXPECT_TRUE(at::equal(out, values.at(name))) << name;
        ++slots;
      });
    }
    EXPECT_GT(slots, values.size());
  }
}

TEST(SharedWeights, BuffersAreLoadedWhole) {
  const TrainingFiles files;
  const train::Recipe recipe = recipe_for(files, "");
  SharedWeights weights(recipe);
  model::Model model = weights.outlines(), expected = load_model(recipe.model.path, recipe.model.storage);
  auto buffers = train::full_buffers(model);
  weights.load(buffers);
  const auto wanted = train::full_buffers(expected);
  ASSERT_EQ(buffers.size(), wanted.size());
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(at::equal(buffers[i].value, wanted[i].value));
}

checkpoint::RecodingLoss rounding_of(const train::Recipe& recipe, int ranks, const parallel::MeshRequest& request,
                                     bool streamed) {
  checkpoint::RecodingLoss result;
  dist::run_thread_ranks(ranks, [&](const std::shared_ptr<dist::Transport>& transport) {
    const auto world = std::make_shared<dist::Comm>(transport, "world");
    const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(ranks, request));
    SharedWeights weights(recipe);
    parallel::StreamedSlices from_first(*world, &weights);
    model::SliceReader& values = streamed ? static_cast<model::SliceReader&>(from_first) : weights;
    model::Model model = weights.outlines();
    train::share_parameters(model, train::lora_parameters(model), comms, false, &values);
    const checkpoint::RecodingLoss rounded = weights.rounded(comms);
    if (world->rank() == 0) result = rounded;
  });
  return result;
}

// However the ranks share the weights, what rounding has done is counted once.
TEST(SharedWeights, RoundingIsCountedAsOnOneRank) {
  const TrainingFiles files;
  train::Recipe recipe = recipe_for(files, "");
  recipe.model.storage = train::Storage::kFp8;
  const checkpoint::RecodingLoss expected = rounding_of(recipe, 1, {}, false);
  ASSERT_GT(expected.changed, 0);
  for (const bool streamed : {false, true}) {
    for (const parallel::MeshRequest& request :
         {parallel::MeshRequest{.expert = 2, .replicate = 2}, {.expert = 1, .shard = 4}}) {
      const checkpoint::RecodingLoss rounded = rounding_of(recipe, 4, request, streamed);
      EXPECT_EQ(rounded.values, expected.values);
      EXPECT_EQ(rounded.changed, expected.changed);
      EXPECT_EQ(rounded.vanished, expected.vanished);
      EXPECT_EQ(rounded.largest_relative, expected.largest_relative);
    }
  }
}

}  // namespace
}  // namespace asterism::cli
