#include "asterism/checkpoint/hf_checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::error_of;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;
using model::TensorRole;
using model::TensorSpec;
using Tensors = std::map<std::string, at::Tensor>;

model::Config config_of(const std::string& name) {
  return model::read_config(golden("hf/" + name + "/config.json"));
}

/// The weights by canonical name.
Tensors named(const model::Config& config, model::Weights weights) {
  Tensors tensors;
  model::for_each_tensor(config, weights,
                         [&](const TensorSpec& spec, at::Tensor& tensor) { tensors[spec.name] = tensor; });
  return tensors;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_EQ(tensor.scalar_type(), b.at(name).scalar_type()) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

/// The stored tensors of a golden checkpoint, to be changed and written elsewhere.
Tensors stored(const std::string& name) {
  const Source source = Source::open(golden("hf/" + name));
  Tensors tensors;
  for (const std::string& tensor : source.names()) tensors[tensor] = source.tensor(tensor).clone();
  return tensors;
}

void write(const TemporaryFolder& folder, const Tensors& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  write_safetensors(folder / "model.safetensors", list);
}

/// The message for `tensors` as a checkpoint of the golden configuration `name`.
std::string error_for(const std::string& name, const Tensors& tensors) {
  const TemporaryFolder folder;
  write(folder, tensors);
  return error_of<InputError>([&] { read_weights(folder.path(), config_of(name)); });
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

class ThreeSpellings : public ::testing::TestWithParam<const char*> {};

TEST_P(ThreeSpellings, GiveIdenticalWeights) {
  const std::string name = GetParam();
  const auto config = config_of(name);
  const auto expected = named(config, read_weights(golden("hf/" + name), config).weights);
  expect_equal(named(config, read_weights(golden("hf/" + name + "/hf_names"), config).weights), expected);

  Tensors native;
  for (const auto& [stored_as, tensor] : stored(name)) {
    const auto canonical = canonical_name(stored_as);
    ASSERT_TRUE(canonical) << stored_as;
    native[canonical->part ? stored_part_name(*canonical, Spelling::kNative)
                           : stored_name(canonical->tensor, Spelling::kNative)] = tensor;
  }
  const TemporaryFolder folder;
  write(folder, native);
  expect_equal(named(config, read_weights(folder.path(), config).weights), expected);
}

INSTANTIATE_TEST_SUITE_P(HfCheckpoint, ThreeSpellings, ::testing::Values("hf_unit", "odd_dims"),
                         [](const auto& info) { return info.param; });

TEST(HfCheckpoint, ReadsEveryTensorWithThePackedLayoutOfTheModuleNames) {
  const auto config = config_of("odd_dims");
  const auto tensors = named(config, read_weights(golden("hf/odd_dims"), config).weights);
  const Source modules = Source::open(golden("hf/odd_dims/hf_names"));
  ASSERT_EQ(tensors.size(), modules.names().size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(tensor, modules.tensor(name))) << name;
}

class EverySpelling : public ::testing::TestWithParam<Spelling> {};

TEST_P(EverySpelling, SurvivesARoundTripInShards) {
  const auto config = config_of("all_paths");
  const auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const TemporaryFolder folder;
  WriteOptions options;
  options.spelling = GetParam();
  options.max_shard_bytes = 500'000;
  write_checkpoint(folder / "out", config, weights, options);
  EXPECT_TRUE(fs::exists(folder / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"out"}));
  const auto again = model::read_config(folder / "out" / "config.json");
  expect_equal(named(again, read_weights(folder / "out", again).weights), named(config, weights));
}

INSTANTIATE_TEST_SUITE_P(HfCheckpoint, EverySpelling,
                         ::testing::Values(Spelling::kModule, Spelling::kSavePretrained, Spelling::kNative));

TEST(HfCheckpoint, RewritesTheFileOfTransformersByteForByte) {
  for (const char* name : {"hf_unit", "odd_dims", "all_paths"}) {
    const auto config = config_of(name);
    const TemporaryFolder folder;
    write_checkpoint(folder / "out", config, read_weights(golden("hf") / name, config).weights);
    EXPECT_TRUE(read_text(folder / "out" / "model.safetensors") ==
                read_text(golden("hf") / name / "model.safetensors"));
  }
}

TEST(HfCheckpoint, RolesDecideTheTypes) {
  const auto config = config_of("all_paths");
  auto tensors = stored("all_paths");
  for (auto& [name, tensor] : tensors) {
    if (tensor.is_floating_point()) tensor = tensor.to(at::kBFloat16);
  }
  const TemporaryFolder folder;
  write(folder, tensors);
  const auto check = [&](const ReadOptions& options, at::ScalarType matrix, at::ScalarType other) {
    auto weights = read_weights(folder.path(), config, options).weights;
    model::for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
      const auto expected = spec.role == TensorRole::kMatrix  ? matrix
                            : spec.role == TensorRole::kTable ? at::kLong
                                                              : other;
      EXPECT_EQ(tensor.scalar_type(), expected) << spec.name;
    });
  };
  check({}, at::kBFloat16, at::kFloat);
  check({.matrix_dtype = at::kFloat}, at::kFloat, at::kFloat);
  check({.matrix_dtype = at::kBFloat16}, at::kBFloat16, at::kFloat);
  check({.matrix_dtype = at::kDouble}, at::kDouble, at::kDouble);
}

TEST(HfCheckpoint, WrittenInBf16MatricesAreRoundedAndTheRestIsKept) {
  const auto config = config_of("all_paths");
  const auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const TemporaryFolder folder;
  WriteOptions options;
  options.spelling = Spelling::kModule;
  options.storage = {.experts = Form::plain(at::kBFloat16), .dense = Form::plain(at::kBFloat16)};
  write_checkpoint(folder / "out", config, weights, options);
  const Source source = Source::open(folder / "out");
  const auto tensors = named(config, weights);
  for (const TensorSpec& spec : model::tensor_specs(config)) {
    const at::Tensor& held = tensors.at(spec.name);
    const at::Tensor expected = spec.role == TensorRole::kMatrix ? held.to(at::kBFloat16) : held;
    EXPECT_TRUE(at::equal(source.tensor(spec.name), expected)) << spec.name;
    EXPECT_EQ(source.tensor(spec.name).scalar_type(), expected.scalar_type()) << spec.name;
  }
  EXPECT_EQ(nlohmann::json::parse(read_text(folder / "out" / "config.json"))["dtype"], "bfloat16");
}

TEST(HfCheckpoint, WeightsHaveMemoryOfTheirOwn) {
  const auto config = config_of("hf_unit");
  auto weights = read_weights(golden("hf/hf_unit"), config).weights;
  weights.embed.zero_();  // would be a fault in a read-only mapping
  EXPECT_NE(read_weights(golden("hf/hf_unit"), config).weights.embed.abs().max().item<float>(), 0.0F);
}

TEST(HfCheckpoint, ReportsMissingUnknownAndMisshapenTensorsTogether) {
  auto tensors = stored("hf_unit");
  tensors.erase("model.norm.weight");
  tensors.erase("model.layers.1.ffn.experts.2.w3.weight");
  tensors["model.layers.0.attn.wq_c.weight"] = at::zeros({1});
  tensors["model.layers.9.attn.wq_a.weight"] = at::zeros({1});
  tensors["model.layers.0.ffn.experts.4.w1.weight"] = at::zeros({1});
  tensors["model.layers.0.attn_norm.weight"] = at::zeros({7});
  tensors["model.layers.0.attn.attn_sink"] = tensors["model.layers.0.attn.attn_sink"].to(at::kLong);
  const std::string message = error_for("hf_unit", tensors);
  EXPECT_TRUE(mentions(message, "2 missing tensors")) << message;
  EXPECT_TRUE(mentions(message, "model.norm.weight [64]")) << message;
  EXPECT_TRUE(mentions(message, "model.layers.1.ffn.experts.2.w3.weight [64, 64]")) << message;
  EXPECT_TRUE(mentions(message, "3 unknown tensors")) << message;
  EXPECT_TRUE(mentions(message, "wq_c.weight (the nearest name is model.layers.0.attn.wq_")) << message;
  EXPECT_TRUE(mentions(message, "model.layers.0.attn_norm.weight: expected [64], found [7]")) << message;
  EXPECT_TRUE(mentions(message, "model.layers.0.attn.attn_sink: expected F32, F16 or BF16, found I64")) << message;
}

TEST(HfCheckpoint, LongListsAreCutAndCounted) {
  auto tensors = stored("hf_unit");
  for (int i = 0; i < 13; ++i) tensors["extra." + std::to_string(i)] = at::zeros({1});
  const std::string message = error_for("hf_unit", tensors);
  EXPECT_TRUE(mentions(message, "13 unknown tensors")) << message;
  EXPECT_TRUE(mentions(message, "and 3 more")) << message;
}

TEST(HfCheckpoint, TwoSpellingsOfOneTensorAreAnError) {
  auto tensors = stored("hf_unit");
  tensors["lm_head.weight"] = tensors["head.weight"];
  EXPECT_TRUE(mentions(error_for("hf_unit", tensors), "head.weight and lm_head.weight"));

  tensors = stored("hf_unit");
  tensors["model.layers.0.mlp.experts.down_proj"] = at::zeros({4, 64, 64});
  EXPECT_TRUE(mentions(error_for("hf_unit", tensors), "model.layers.0.mlp.experts.down_proj and model.layers.0.ffn."));
}

TEST(HfCheckpoint, ExpertsOfDifferentTypesNeedAChoice) {
  auto tensors = stored("hf_unit");
  at::Tensor& expert = tensors["model.layers.0.ffn.experts.3.w2.weight"];
  expert = expert.to(at::kBFloat16);
  EXPECT_TRUE(mentions(error_for("hf_unit", tensors), "experts.3.w2.weight: expected F32 as in the other experts"));
  const TemporaryFolder folder;
  write(folder, tensors);
  const auto config = config_of("hf_unit");
  const auto weights = read_weights(folder.path(), config, {.matrix_dtype = at::kFloat}).weights;
  EXPECT_TRUE(at::equal(weights.layers[0].moe.moe.down.weight.plain[3], expert.to(at::kFloat)));
}

TEST(HfCheckpoint, HashTablesStayIntegersWithinTheExperts) {
  const std::string name = "model.layers.1.ffn.gate.tid2eid";
  for (const int64_t wrong : {-1, 8}) {
    auto tensors = stored("all_paths");
    tensors[name][7][1] = wrong;
    const std::string message = error_for("all_paths", tensors);
    EXPECT_TRUE(mentions(message, "0 .. 7, found " + std::to_string(wrong) + " at token 7, slot 1")) << message;
  }
  auto tensors = stored("all_paths");
  tensors[name] = tensors[name].to(at::kFloat);
  EXPECT_TRUE(mentions(error_for("all_paths", tensors), name + ": expected I64 or I32, found F32"));
}

TEST(HfCheckpoint, CodedTensorsWithoutScalesAreReportedWithTheOtherFindings) {
  auto tensors = stored("hf_unit");
  tensors["model.layers.0.attn.wq_a.weight"] = tensors["model.layers.0.attn.wq_a.weight"].to(at::kFloat8_e4m3fn);
  tensors["model.layers.0.attn.wkv.scale"] = at::ones({1, 1});
  tensors["model.layers.0.attn.wx.scale"] = at::ones({1, 1});
  tensors.erase("model.norm.weight");
  const std::string message = error_for("hf_unit", tensors);
  EXPECT_TRUE(mentions(message, "1 weights without scales:\n    model.layers.0.attn.wq_a.weight (F8_E4M3)")) << message;
  EXPECT_TRUE(mentions(message, "1 scales of weights that have none:\n    model.layers.0.attn.wkv.scale")) << message;
  EXPECT_TRUE(mentions(message, "1 unknown tensors:\n    model.layers.0.attn.wx.scale")) << message;
  EXPECT_TRUE(mentions(message, "1 missing tensors:\n    model.norm.weight")) << message;
}

TEST(HfCheckpoint, MtpTensorsAreReadOrLeftAsideAsTheConfigurationSays) {
  auto tensors = stored("all_paths");
  const auto mtp = SafetensorsFile::open(golden("ref/all_paths/mtp.weights.safetensors"));
  for (const TensorInfo& info : mtp.tensors()) tensors[info.name] = mtp.view(info.name);
  tensors["mtp.0.head.weight"] = tensors["head.weight"];
  const TemporaryFolder folder;
  write(folder, tensors);

  auto config = config_of("all_paths");
  const auto without = read_weights(folder.path(), config);
  EXPECT_TRUE(without.weights.mtp.empty());
  ASSERT_EQ(without.notes.size(), 2U);  // what was detected comes first
  EXPECT_TRUE(mentions(without.notes[1], std::to_string(mtp.tensors().size() + 1) + " MTP tensors"));

  config.num_mtp_layers = 1;
  const auto with = read_weights(folder.path(), config);
  EXPECT_TRUE(at::equal(with.weights.mtp.at(0).e_proj.weight.plain, mtp.view("mtp.0.e_proj.weight")));
  EXPECT_TRUE(at::equal(with.weights.mtp[0].layer.moe.moe.gate_up.weight.plain[5].narrow(0, 32, 32),
                        mtp.view("mtp.0.ffn.experts.5.w3.weight")));
  for (const Spelling spelling : {Spelling::kModule, Spelling::kSavePretrained, Spelling::kNative}) {
    const TemporaryFolder out;
    WriteOptions options;
    options.spelling = spelling;
    write_checkpoint(out / "out", config, with.weights, options);
    const auto again = model::read_config(out / "out" / "config.json");
    EXPECT_EQ(again.num_mtp_layers, 1);
    expect_equal(named(again, read_weights(out / "out", again).weights), named(config, with.weights));
  }
}

TEST(HfCheckpoint, AMissingMtpLayerGetsItsOwnAdvice) {
  auto config = config_of("all_paths");
  config.num_mtp_layers = 1;
  const std::string message = error_of<InputError>([&] { read_weights(golden("hf/all_paths"), config); });
  EXPECT_TRUE(mentions(message, "set num_nextn_predict_layers to 0")) << message;
}

TEST(HfCheckpoint, AFailedWriteLeavesNothing) {
  const auto config = config_of("hf_unit");
  auto weights = read_weights(golden("hf/hf_unit"), config).weights;
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(write_checkpoint(folder / "file" / "out", config, weights), RunError);
  weights.norm = at::zeros({3});
  EXPECT_THROW(write_checkpoint(folder / "out", config, weights), c10::Error);
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"file"}));
}

TEST(HfCheckpoint, AnExistingFolderIsKeptUnlessItIsToBeReplaced) {
  const auto config = config_of("hf_unit");
  const auto weights = read_weights(golden("hf/hf_unit"), config).weights;
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.write("out/mine", "text");
  EXPECT_THROW(write_checkpoint(folder / "out", config, weights), InputError);
  EXPECT_TRUE(fs::exists(folder / "out" / "mine"));
  WriteOptions options;
  options.replace = true;
  write_checkpoint(folder / "out", config, weights, options);
  EXPECT_FALSE(fs::exists(folder / "out" / "mine"));
  EXPECT_TRUE(fs::exists(folder / "out" / "model.safetensors"));
}

}  // namespace
}  // namespace asterism::checkpoint
