#include "asterism/checkpoint/binding.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::error_of;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;

model::Config golden_config(const std::string& name) {
  return model::read_config(golden("hf") / name / "config.json");
}

TEST(Binding, FindsWholeTensorsAndPartsOfExperts) {
  const auto config = golden_config("odd_dims");
  const auto parts = bind_checkpoint(golden("hf/odd_dims"), config, true);
  const auto modules = bind_checkpoint(golden("hf/odd_dims/hf_names"), config, true);
  const auto specs = model::tensor_specs(config);
  ASSERT_EQ(parts.tensors.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(parts.tensors[i].spec.name, specs[i].name);
    const bool packed = is_packed_experts(specs[i].name);
    EXPECT_EQ(parts.tensors[i].whole == nullptr, packed) << specs[i].name;
    const size_t matrices = packed ? packed_matrices(specs[i].name).size() * config.num_experts : 0;
    EXPECT_EQ(parts.tensors[i].of_expert.size(), matrices) << specs[i].name;
    ASSERT_NE(modules.tensors[i].whole, nullptr);
    EXPECT_EQ(modules.tensors[i].whole->name, specs[i].name);
  }
}

TEST(Binding, TellsWhatWasDetected) {
  const auto config = golden_config("odd_dims");
  EXPECT_NE(bind_checkpoint(golden("hf/odd_dims/hf_names"), config, true).notes.at(0).find("module names"),
            std::string::npos);
  EXPECT_NE(bind_checkpoint(golden("hf/odd_dims"), config, true).notes.at(0).find("DeepSeek's names below model."),
            std::string::npos);
}

TEST(Binding, ExpertsOfOneFormAreAChoice) {
  const auto config = golden_config("odd_dims");
  const Source source = Source::open(golden("hf/odd_dims"));
  std::vector<NamedTensor> tensors;
  for (const std::string& name : source.names()) tensors.push_back({name, source.tensor(name)});
  for (NamedTensor& tensor : tensors) {
    if (tensor.name == "model.layers.0.ffn.experts.2.w2.weight") tensor.dtype = at::kBFloat16;
  }
  const TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors", tensors);
  const std::string message = error_of<InputError>([&] { bind_checkpoint(folder.path(), config, true); });
  EXPECT_NE(message.find("experts.2.w2.weight: expected F32 as in the other experts, found BF16"), std::string::npos)
      << message;
  EXPECT_NO_THROW(bind_checkpoint(folder.path(), config, false));
}

TEST(Binding, PartsAreViewsOfTheirExpert) {
  const at::Tensor packed = at::arange(2 * 6 * 2).view({2, 6, 2});
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";
  EXPECT_TRUE(at::equal(part_of(packed, name, {1, ExpertPart::Matrix::kUp}), packed[1].narrow(0, 3, 3)));
  EXPECT_EQ(part_shape({name, {2, 6, 2}}), (std::vector<int64_t>{3, 2}));
}

}  // namespace
}  // namespace asterism::checkpoint
