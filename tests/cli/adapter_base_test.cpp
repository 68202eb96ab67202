#include "asterism/cli/adapter_base.h"

#include <gtest/gtest.h>

#include "asterism/checkpoint/convert.h"
#include "asterism/core/error.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using checkpoint::Form;
using checkpoint::Spelling;
using testing::error_of;

TEST(AdapterBase, TheSameWeightsInAnotherFormPass) {
  const testing::TemporaryFolder folder;
  testing::write_conversion_source(folder / "base", 1, {});
  checkpoint::convert_checkpoint(
      folder / "base", folder / "released",
      {.spelling = Spelling::kNative, .storage = {.experts = Form::fp4(), .dense = Form::fp8()}}, 2);
  check_adapter_base(folder / "base", folder / "base");
  check_adapter_base(folder / "base", folder / "released");
  check_adapter_base(folder / "released", folder / "base");
}

TEST(AdapterBase, WhatIsNotHereCannotBeCompared) {
  const testing::TemporaryFolder folder;
  testing::write_conversion_source(folder / "base", 0, {});
  check_adapter_base("", folder / "base");
  check_adapter_base("deepseek-ai/DeepSeek-V4-Flash", folder / "base");
}

TEST(AdapterBase, OtherWeightsAreRefused) {
  const testing::TemporaryFolder folder;
  const auto config = testing::write_conversion_source(folder / "base", 0, {});
  auto weights = checkpoint::read_weights(folder / "base", config).weights;
  weights.lm_head = weights.lm_head.flip(0).contiguous();
  checkpoint::write_checkpoint(folder / "other", config, weights);
  const std::string message =
      error_of<InputError>([&] { check_adapter_base((folder / "base").string(), folder / "other"); });
  for (const std::string& part : {(folder / "base").string(), (folder / "other").string(),
                                  std::string("lm_head.weight differs"), std::string("--any-base")}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace asterism::cli
