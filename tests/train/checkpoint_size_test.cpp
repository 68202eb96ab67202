#include "asterism/train/checkpoint_size.h"

#include <gtest/gtest.h>

#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/train_state.h"
#include "asterism/model/lora.h"
#include "asterism/train/resume.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

namespace fs = std::filesystem;

/// DeepSeek-V4-Flash (model-spec 1.1, 1.2).
model::Config flash_config() {
  nlohmann::ordered_json config = testing::tiny_config_json();
  config.update({{"vocab_size", 129280},
                 {"hidden_size", 4096},
                 {"num_hidden_layers", 43},
                 {"num_attention_heads", 64},
                 {"head_dim", 512},
                 {"qk_rope_head_dim", 64},
                 {"q_lora_rank", 1024},
                 {"o_groups", 8},
                 {"o_lora_rank", 1024},
                 {"n_routed_experts", 256},
                 {"num_experts_per_tok", 6},
                 {"moe_intermediate_size", 2048},
                 {"num_hash_layers", 3},
                 {"sliding_window", 128},
                 {"index_n_heads", 64},
                 {"index_head_dim", 128},
                 {"index_topk", 512},
                 {"swiglu_limit", 10.0}});
  nlohmann::ordered_json ratios = {0, 0};
  for (int i = 0; i < 20; ++i) ratios.insert(ratios.end(), {4, 128});
  ratios.insert(ratios.end(), {4, 0});
  config["compress_ratios"] = ratios;
  return model::parse_config(config, "flash");
}

TEST(CheckpointSize, OfFlashExpertsIsAboutThreeAdapters) {
  // TC24, from the configuration alone: rank 8 on gate_up and down of 256 experts in 43 layers.
  Recipe recipe;
  recipe.lora.emplace();
  recipe.lora->config.rank = 8;
  recipe.lora->config.targets = {"experts"};
  const CheckpointSize size = checkpoint_size(recipe, flash_config());
  EXPECT_EQ(size.trained_numbers, 1262485504);
  EXPECT_EQ(size.trained_numbers * 2, 2524971008);  // of a bf16 adapter
  const auto payload = static_cast<uint64_t>(size.trained_numbers) * 4;
  EXPECT_GE(size.adapter_bytes, payload);
  EXPECT_LE(size.adapter_bytes, payload + payload / 50);
  EXPECT_GE(size.state_bytes, 3 * payload);
  EXPECT_LE(size.state_bytes, 3 * payload + payload / 50);  // the base of 160 GB is not in it
}

TEST(CheckpointSize, OfFlashInFullIsTwelveBytesAParameter) {
  const CheckpointSize size = checkpoint_size({}, flash_config());
  EXPECT_NEAR(static_cast<double>(size.trained_numbers), 284e9, 1e9);
  EXPECT_NEAR(static_cast<double>(size.state_bytes), 12.0 * static_cast<double>(size.trained_numbers), 1e8);
  EXPECT_EQ(size.adapter_bytes, 0u);
}

void expect_close(uint64_t stated, uint64_t written) {
  EXPECT_NEAR(static_cast<double>(stated), static_cast<double>(written), 0.05 * static_cast<double>(written));
}

TEST(CheckpointSize, IsWhatACheckpointTakes) {
  for (const bool lora : {false, true}) {
    const testing::TemporaryFolder folder;
    Recipe recipe;
    model::Model model = testing::tiny_model(at::kFloat);
    if (lora) {
      recipe.lora.emplace();
      model::attach_lora(model.config, model.weights, recipe.lora->config, 1);
    }
    const AdamW optimizer(lora ? lora_parameters(model) : full_parameters(model, {}), {});
    const auto buffers = lora ? std::vector<Parameter>{} : full_buffers(model);
    const checkpoint::StateFolder states(folder.path());
    states.save(1, capture_state(1, optimizer, buffers, {}), 1);
    const CheckpointSize size = checkpoint_size(recipe, model.config);
    EXPECT_EQ(size.trained_numbers, count_elements(optimizer.parameters()));
    expect_close(size.state_bytes, fs::file_size(states.path_of(1) / "state.safetensors"));
    if (!lora) continue;
    checkpoint::write_adapter(folder / "adapter", model.config, model.weights, recipe.lora->config, "");
    expect_close(size.adapter_bytes, fs::file_size(folder / "adapter/adapter_model.safetensors"));
  }
}

}  // namespace
}  // namespace asterism::train
