#include "asterism/checkpoint/peft_names.h"

#include <gtest/gtest.h>

namespace asterism::checkpoint {
namespace {

const std::string kGateUp = "model.layers.3.mlp.experts.gate_up_proj", kDown = "model.layers.3.mlp.experts.down_proj";

TEST(PeftNames, TwoAdaptedParametersOfOneModuleNest) {
  const Pairs both = {{kGateUp, {}}, {kDown, {}}};
  EXPECT_EQ(adapter_path(kGateUp, both), "base_model.model.model.layers.3.mlp.experts.base_layer");
  EXPECT_EQ(adapter_path(kDown, both), "base_model.model.model.layers.3.mlp.experts");
  EXPECT_EQ(adapter_path(kGateUp, {{kGateUp, {}}}), "base_model.model.model.layers.3.mlp.experts");
  EXPECT_EQ(adapter_path("model.layers.3.mlp.gate.weight", both), "base_model.model.model.layers.3.mlp.gate");
}

TEST(PeftNames, PartsAreNamedByTheirModules) {
  using Matrix = ExpertPart::Matrix;
  const std::string experts = "base_model.model.model.layers.3.mlp.experts.";
  EXPECT_EQ(adapter_path_of_part({kGateUp, ExpertPart{11, Matrix::kGate}}), experts + "11.gate_proj");
  EXPECT_EQ(adapter_path_of_part({kGateUp, ExpertPart{0, Matrix::kUp}}), experts + "0.up_proj");
  EXPECT_EQ(adapter_path_of_part({kDown, ExpertPart{2, Matrix::kDown}}), experts + "2.down_proj");
}

}  // namespace
}  // namespace asterism::checkpoint
