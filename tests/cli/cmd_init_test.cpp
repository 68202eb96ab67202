#include <gtest/gtest.h>

#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/conversions.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::golden;
using testing::run_asterism;
using testing::TemporaryFolder;

InitArgs arguments(const std::filesystem::path& out, uint64_t seed) {
  return {.config = golden("hf/odd_dims/config.json"), .out = out, .seed = seed};
}

TEST(CmdInit, IsDeterministicInTheSeed) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_init(arguments(folder / "a", 1)), 0);
  EXPECT_EQ(run_init(arguments(folder / "b", 1)), 0);
  EXPECT_EQ(run_init(arguments(folder / "c", 2)), 0);
  const std::string weights = read_text(folder / "a" / "model.safetensors");
  EXPECT_EQ(weights, read_text(folder / "b" / "model.safetensors"));
  EXPECT_NE(weights, read_text(folder / "c" / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "a" / "config.json"));
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"a", "b", "c"}));
}

TEST(CmdInit, LayoutsHoldTheSameValues) {
  const TemporaryFolder folder;
  InitArgs native = arguments(folder / "native", 1);
  native.layout = "native";
  run_init(arguments(folder / "hf", 1));
  run_init(native);
  ::testing::internal::CaptureStdout();
  const int exit_code = run_diff({.a = folder / "hf", .b = folder / "native"});
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(exit_code, 0) << out;
}

TEST(CmdInit, StoresMatricesAsAsked) {
  const TemporaryFolder folder;
  InitArgs half = arguments(folder / "bf16", 1);
  half.storage = "bf16";
  run_init(arguments(folder / "fp32", 1));
  run_init(half);
  const auto size = [&](const char* name) { return std::filesystem::file_size(folder / name / "model.safetensors"); };
  EXPECT_LT(size("bf16"), size("fp32") * 2 / 3);
}

TEST(CmdInit, TheStorageOfTheReleaseHoldsTheSameValues) {
  const TemporaryFolder folder;
  const auto config = folder.write("config.json", testing::conversion_config_json(1).dump());
  run_init({.config = config, .out = folder / "fp32"});
  for (const char* storage : {"fp8", "fp4"}) {
    const auto out = folder / storage;
    run_init({.config = config, .out = out, .storage = storage, .layout = "native"});
    const auto tensors = testing::stored_tensors_of(out);
    const bool fp4 = std::string(storage) == "fp4";
    EXPECT_EQ(tensors.at("layers.1.ffn.experts.0.w1.weight").scalar_type(), fp4 ? at::kChar : at::kFloat8_e4m3fn);
    EXPECT_EQ(tensors.at("layers.1.ffn.experts.0.w1.scale").scalar_type(), at::kFloat8_e8m0fnu);
    EXPECT_EQ(tensors.at("layers.1.attn.wq_a.weight").scalar_type(), at::kFloat8_e4m3fn);
    EXPECT_EQ(tensors.at("mtp.0.e_proj.weight").scalar_type(), at::kFloat8_e4m3fn);
    for (const char* name : {"embed.weight", "norm.weight", "layers.1.ffn.gate.weight"}) {
      EXPECT_EQ(tensors.at(name).scalar_type(), at::kBFloat16) << name;
    }
    EXPECT_EQ(tensors.at("layers.1.attn.compressor.ape").scalar_type(), at::kFloat);
    // Half of the largest step of the code, relative to the largest value of its block.
    ::testing::internal::CaptureStdout();
    const int exit_code = run_diff({.a = folder / "fp32", .b = out, .atol = fp4 ? 0.02 : 0.01, .ignore_dtype = true});
    const std::string report = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(exit_code, 0) << report;
  }
}

TEST(CmdInit, WarnsOfRatiosThatTransformersCannotRead) {
  const TemporaryFolder folder;
  auto config = testing::conversion_config_json(0);
  config["compress_ratios"] = {0, 4, 16};
  folder.write("config.json", config.dump());
  const auto native =
      run_asterism({"init", "--config", folder / "config.json", "--out", folder / "native", "--layout", "native"});
  EXPECT_EQ(native.exit_code, 0) << native.err;
  EXPECT_NE(native.err.find("warning: config.json: compress_ratios holds 16"), std::string::npos) << native.err;
  const auto hf = run_asterism({"init", "--config", folder / "config.json", "--out", folder / "hf"});
  EXPECT_EQ(hf.err.find("warning"), std::string::npos) << hf.err;
}

TEST(CmdInit, RefusesAnExistingFolderAndLeavesNothing) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "out");
  EXPECT_NE(error_of<InputError>([&] { run_init(arguments(folder / "out", 1)); }).find("exists already"),
            std::string::npos);
  InitArgs no_tokenizer = arguments(folder / "new", 1);
  no_tokenizer.tokenizer = folder / "absent";
  EXPECT_NE(error_of<InputError>([&] { run_init(no_tokenizer); }).find("absent"), std::string::npos);
  EXPECT_EQ(folder.entries(), std::set<std::string>{"out"});
}

TEST(CmdInit, CopiesTheTokenizerThatFits) {
  const TemporaryFolder folder;
  nlohmann::json config = nlohmann::json::parse(read_text(golden("hf/odd_dims/config.json")));
  config["vocab_size"] = 256;
  folder.write("config.json", config.dump());
  std::filesystem::create_directory(folder / "tok");
  const std::string tokenizer = data::small_tokenizer({}).dump();
  folder.write("tok/tokenizer.json", tokenizer);
  folder.write("tok/tokenizer_config.json", "{}");
  EXPECT_EQ(run_init({.config = folder / "config.json", .out = folder / "out", .tokenizer = folder / "tok"}), 0);
  EXPECT_EQ(read_text(folder / "out" / "tokenizer.json"), tokenizer);
  EXPECT_EQ(read_text(folder / "out" / "tokenizer_config.json"), "{}");
}

TEST(CmdInit, RefusesATokenizerWithTooManyTokens) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", data::small_tokenizer({}).dump());
  InitArgs args = arguments(folder / "out", 1);
  args.tokenizer = folder.path();
  const std::string error = error_of<InputError>([&] { run_init(args); });
  EXPECT_NE(error.find("the tokenizer has 256 tokens, the model only 197"), std::string::npos) << error;
}

}  // namespace
}  // namespace asterism::cli
