#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/safetensors.h"
#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using checkpoint::write_safetensors;
using testing::golden;
using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

struct DiffResult {
  int exit_code;
  std::string out;
};

DiffResult diff(const DiffArgs& args) {
  ::testing::internal::CaptureStdout();
  const int exit_code = run_diff(args);
  return {exit_code, ::testing::internal::GetCapturedStdout()};
}

TEST(CmdDiff, SpellingsOfOneModelAreEqual) {
  const DiffResult result = diff({.a = golden("hf/odd_dims"), .b = golden("hf/odd_dims/hf_names")});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.out.find("equal: "), 0u) << result.out;
}

TEST(CmdDiff, LayoutsAndStoragesAreCompared) {
  const TemporaryFolder folder;
  testing::write_conversion_source(
      folder / "native", 1,
      {.spelling = checkpoint::Spelling::kNative,
       .storage = {.experts = checkpoint::Form::fp4(), .dense = checkpoint::Form::fp8(), .norms = at::kBFloat16}});
  const checkpoint::Form bf16 = checkpoint::Form::plain(at::kBFloat16);
  checkpoint::convert_checkpoint(folder / "native", folder / "bf16", {.storage = {.experts = bf16, .dense = bf16}}, 2);
  checkpoint::convert_checkpoint(folder / "native", folder / "same", {}, 2);
  EXPECT_EQ(diff({.a = folder / "native", .b = folder / "same"}).exit_code, 0);
  const DiffResult types = diff({.a = folder / "native", .b = folder / "bf16"});
  EXPECT_EQ(types.exit_code, 3);
  EXPECT_NE(types.out.find("types FP4 and BF16; 0 of "), std::string::npos) << types.out;
  EXPECT_EQ(diff({.a = folder / "native", .b = folder / "bf16", .ignore_dtype = true}).exit_code, 0);
  EXPECT_EQ(diff({.a = folder / "bf16", .b = folder / "same", .ignore_dtype = true}).exit_code, 0);
}

class CmdDiffOnFiles : public ::testing::Test {
 protected:
  CmdDiffOnFiles() {
    write_safetensors(folder_ / "a.safetensors", {{"same", at::ones({2}), {}},
                                                  {"value", at::full({4}, 2.0), {}},
                                                  {"shape", at::ones({2, 3}), {}},
                                                  {"type", at::ones({2}), {}},
                                                  {"left", at::ones({1}), {}}});
    write_safetensors(folder_ / "b.safetensors", {{"same", at::ones({2}), {}},
                                                  {"value", at::tensor({2.0, 2.0, 2.0, 2.5}, at::kFloat), {}},
                                                  {"shape", at::ones({3, 2}), {}},
                                                  {"type", at::ones({2}, at::kBFloat16), {}},
                                                  {"right", at::ones({1}), {}}});
    args_ = {.a = folder_ / "a.safetensors", .b = folder_ / "b.safetensors"};
  }

  Json tensor(const Json& result, const std::string& name) const {
    for (const Json& entry : result.at("tensors")) {
      if (entry.at("name") == name) return entry;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  TemporaryFolder folder_;
  DiffArgs args_;
};

TEST_F(CmdDiffOnFiles, JsonHoldsEveryFinding) {
  args_.json = true;
  const DiffResult result = diff(args_);
  EXPECT_EQ(result.exit_code, 3);
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("equal"), false);
  EXPECT_EQ(json.at("only_a"), Json::array({"left"}));
  EXPECT_EQ(json.at("only_b"), Json::array({"right"}));
  ASSERT_EQ(json.at("tensors").size(), 4u);
  EXPECT_EQ(tensor(json, "same").at("equal"), true);
  const Json value = tensor(json, "value");
  EXPECT_EQ(value.at("equal"), false);
  EXPECT_EQ(value.at("differing"), 1);
  EXPECT_EQ(value.at("max_absolute"), 0.5);
  EXPECT_EQ(value.at("max_relative"), 0.2);
  EXPECT_EQ(tensor(json, "shape").at("shape_b"), Json::array({3, 2}));
  EXPECT_EQ(tensor(json, "type").at("equal"), false);
  EXPECT_EQ(tensor(json, "type").at("dtype_b"), "BF16");
  EXPECT_EQ(tensor(json, "type").at("differing"), 0);
}

TEST_F(CmdDiffOnFiles, TextNamesEveryFinding) {
  const DiffResult result = diff(args_);
  for (const char* fragment : {"only in ", "left", "right", "shape: shapes [2, 3] and [3, 2]", "types F32 and BF16",
                               "value: 1 of 4 elements differ, largest difference 0.5 (relative 0.2)",
                               "different: 4 tensors in both, 3 of them different"}) {
    EXPECT_NE(result.out.find(fragment), std::string::npos) << "expected \"" << fragment << "\" in\n" << result.out;
  }
}

TEST_F(CmdDiffOnFiles, TolerancesAndTypesCanBeForgiven) {
  write_safetensors(folder_ / "c.safetensors", {{"x", at::full({2}, 1.0), {}}});
  write_safetensors(folder_ / "d.safetensors", {{"x", at::full({2}, 1.25), {}}});
  write_safetensors(folder_ / "e.safetensors", {{"x", at::full({2}, 1.0, at::kBFloat16), {}}});
  const std::string c = folder_ / "c.safetensors", d = folder_ / "d.safetensors", e = folder_ / "e.safetensors";
  EXPECT_EQ(diff({.a = c, .b = d}).exit_code, 3);
  EXPECT_EQ(diff({.a = c, .b = d, .rtol = 0.2}).exit_code, 0);
  EXPECT_EQ(diff({.a = c, .b = d, .atol = 0.25}).exit_code, 0);
  EXPECT_EQ(diff({.a = c, .b = d, .atol = 0.24}).exit_code, 3);
  EXPECT_EQ(diff({.a = c, .b = e}).exit_code, 3);
  EXPECT_EQ(diff({.a = c, .b = e, .ignore_dtype = true}).exit_code, 0);
}

}  // namespace
}  // namespace asterism::cli
