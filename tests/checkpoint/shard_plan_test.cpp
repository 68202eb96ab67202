#include "asterism/checkpoint/shard_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::TemporaryFolder;

TargetTensor plan_tensor(const std::string& name, const Form& form, std::vector<int64_t> shape, int64_t matrices = 1) {
  return {.name = name,
          .scale_name = form.is_coded() ? name + ".s" : "",
          .form = form,
          .shape = std::move(shape),
          .matrices = matrices};
}

TEST(ShardPlan, PlacesAreThoseThatReadersFind) {
  const std::vector<TargetTensor> tensors = {
      plan_tensor("a", Form::fp4(), {2, 64}),
      plan_tensor("b", Form::fp8(at::kFloat), {130, 129}),
      plan_tensor("c", Form::plain(at::kLong), {3, 2}),
      plan_tensor("packed", Form::fp8(), {2, 260, 64}, 2),
  };
  const ShardPlan plan = plan_shards(tensors, 1'000'000);
  ASSERT_EQ(plan.files.size(), 1U);
  EXPECT_EQ(plan.files[0].name, "model.safetensors");
  EXPECT_EQ(plan.index, "");
  const TemporaryFolder folder;
  std::string content = plan.files[0].header;
  content.resize(plan.files[0].bytes);
  const auto file = SafetensorsFile::open(folder.write("model.safetensors", content));
  EXPECT_EQ(file.info("a").shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(file.info("a.s").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.info("b.s").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.info("packed.s").shape, (std::vector<int64_t>{2, 4, 1}));
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(plan.placements[i].data, file.info(tensors[i].name).offset) << tensors[i].name;
    if (!tensors[i].form.is_coded()) continue;
    EXPECT_EQ(plan.placements[i].scale, file.info(tensors[i].scale_name).offset);
  }
}

TEST(ShardPlan, AWeightAndItsScalesStayTogether) {
  std::vector<TargetTensor> tensors;
  for (int i = 0; i < 5; ++i)
    tensors.push_back(plan_tensor("t" + std::to_string(i), Form::fp8(), {10, 10}));  // 101 bytes
  const ShardPlan plan = plan_shards(tensors, 250);
  ASSERT_EQ(plan.files.size(), 3U);
  EXPECT_EQ(plan.files[2].name, "model-00003-of-00003.safetensors");
  const auto index = nlohmann::json::parse(plan.index);
  EXPECT_EQ(index["metadata"]["total_size"], 505);
  for (int i = 0; i < 5; ++i) {
    const std::string name = "t" + std::to_string(i),
                      file = "model-0000" + std::to_string(i / 2 + 1) + "-of-00003.safetensors";
    EXPECT_EQ(index["weight_map"][name], file);
    EXPECT_EQ(index["weight_map"][name + ".s"], file);
  }
}

TEST(ShardPlan, NamesMustDiffer) {
  const std::vector<TargetTensor> twice = {plan_tensor("a", Form::fp8(), {1, 1}),
                                           plan_tensor("a", Form::fp8(), {1, 1})};
  EXPECT_THROW(plan_shards(twice, 1000), c10::Error);
  EXPECT_THROW(plan_shards(twice, 1), c10::Error);
}

}  // namespace
}  // namespace asterism::checkpoint
