#include "asterism/model/slices.h"

#include <gtest/gtest.h>

#include "asterism/model/lora.h"
#include "tests/support/packed_weights.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

TEST(Slices, EverySlotOfAModelHasANameOfItsOwn) {
  Model model = testing::tiny_model(at::kFloat);
  model.weights.layers[0].moe.moe.down.weight = ops::pack(at::ones({2, 128, 128}), ops::PackedFormat::kFp8, at::kByte);
  attach_lora(model.config, model.weights, {.rank = 2, .targets = {"experts"}}, 1);
  std::map<std::string, at::Tensor> named;
  for_each_named_slot(model.config, model.weights, [&](const std::string& name, at::Tensor& slot) {
    EXPECT_TRUE(slot.defined());
    EXPECT_TRUE(named.emplace(name, slot).second) << name << " twice";
  });
  const std::string experts = "model.layers.0.mlp.experts.down_proj";
  EXPECT_FALSE(named.contains(experts)) << "its plain slot is empty";
  EXPECT_EQ(named.at(experts + kCodesEnd).sizes(), (std::vector<int64_t>{2, 128, 128}));
  EXPECT_TRUE(named.contains(experts + kScalesEnd));
  EXPECT_TRUE(named.contains(experts + kLoraAEnd));
  EXPECT_TRUE(named.contains(experts + kLoraBEnd));
  EXPECT_TRUE(named.contains("model.layers.1.mlp.experts.gate_up_proj"));
  EXPECT_TRUE(named.contains("lm_head.weight"));
}

TEST(Slices, AnOutlineHasShapeAndTypeAlone) {
  const at::Tensor tensor = outline({int64_t{1} << 40, 3}, at::kBFloat16);
  EXPECT_EQ(tensor.size(0), int64_t{1} << 40);
  EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(is_outline(tensor));
  EXPECT_FALSE(is_outline(at::zeros({2})));
  EXPECT_FALSE(is_outline(ops::Matrix()));
  const ops::Matrix packed =
      ops::make_packed(ops::PackedFormat::kFp4, outline({64, 32}, at::kByte), outline({64, 2}, at::kByte));
  EXPECT_TRUE(is_outline(packed));
  EXPECT_TRUE(is_outline(packed.to(at::kFloat))) << "what is decoded of it has no values either";
  EXPECT_EQ(packed.to(at::kFloat).sizes(), (std::vector<int64_t>{64, 64}));
}

// Pairs on outlines are outlines; their slices are those of the pairs that are made whole.
TEST(Slices, FreshPairsAreMadeInSlices) {
  Model whole = testing::tiny_model(at::kFloat), sliced = testing::tiny_model(at::kFloat);
  for_each_named_slot(sliced.config, sliced.weights,
                      [](const std::string&, at::Tensor& slot) { slot = outline(slot.sizes(), slot.scalar_type()); });
  const LoraConfig lora{.rank = 3};
  EXPECT_EQ(attach_lora(sliced.config, sliced.weights, lora, 5), attach_lora(whole.config, whole.weights, lora, 5));
  FreshLora fresh(sliced.config, 5);
  std::map<std::string, at::Tensor> expected;
  for_each_named_slot(whole.config, whole.weights,
                      [&](const std::string& name, at::Tensor& slot) { expected[name] = slot; });
  int64_t pairs = 0;
  for_each_named_slot(sliced.config, sliced.weights, [&](const std::string& name, at::Tensor& slot) {
    ASSERT_TRUE(slot.is_meta()) << name;
    if (name.find(".lora_") == std::string::npos) return;
    const at::Tensor values = at::full({slot.numel()}, NAN, at::kFloat);
    const int64_t cut = slot.numel() / 3;
    fresh.read(name, 0, values.narrow(0, 0, cut));
    fresh.read(name, cut, values.narrow(0, cut, slot.numel() - cut));
    EXPECT_TRUE(at::equal(values.view(slot.sizes()), expected.at(name))) << name;
    ++pairs;
  });
  EXPECT_GT(pairs, 10);
}

}  // namespace
}  // namespace asterism::model
