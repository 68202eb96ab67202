#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/conversions.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::kill_while_it_writes;
using testing::run_asterism;
using testing::same_tensors;
using testing::stored_tensors_of;
using testing::TemporaryFolder;

/// A folder "native" in the storage of the release, made by init.
void init_native(const TemporaryFolder& folder) {
  folder.write("config.json", testing::conversion_config_json(1).dump());
  run_init({.config = folder / "config.json", .out = folder / "native", .storage = "fp4", .layout = "native"});
}

TEST(CmdConvert, PrintsWhatIsLostPerClass) {
  const TemporaryFolder folder;
  init_native(folder);
  const auto exact = run_asterism({"convert", folder / "native", folder / "bf16", "--to", "hf", "--experts", "bf16",
                                   "--dense", "bf16", "--verify"});
  EXPECT_EQ(exact.exit_code, 0) << exact.err;
  EXPECT_NE(exact.out.find("experts (8), FP4 -> BF16: exact"), std::string::npos) << exact.out;
  EXPECT_NE(exact.out.find("dense matrices (35), FP8 -> BF16: exact"), std::string::npos) << exact.out;
  EXPECT_NE(exact.err.find("read back as they were written"), std::string::npos) << exact.err;

  const auto dense =
      run_asterism({"convert", folder / "native", folder / "fp4", "--to", "native", "--dense", "bf16", "--json"});
  EXPECT_EQ(dense.exit_code, 0) << dense.err;
  const auto report = nlohmann::json::parse(dense.out);
  for (const auto& entry : report["classes"]) EXPECT_TRUE(entry["exact"]) << entry;
  const auto lossy =
      run_asterism({"convert", folder / "bf16", folder / "f32", "--to", "native", "--dense", "fp8", "--scales", "f32"});
  EXPECT_EQ(lossy.exit_code, 0) << lossy.err;
  EXPECT_NE(lossy.out.find("BF16 -> FP8 (F32 scales): largest relative error "), std::string::npos) << lossy.out;
}

TEST(CmdConvert, WarnsOfRatiosThatTransformersCannotRead) {
  const TemporaryFolder folder;
  auto config = testing::conversion_config_json(0);
  config["compress_ratios"] = {0, 4, 16};
  folder.write("config.json", config.dump());
  run_init({.config = folder / "config.json", .out = folder / "base"});
  const auto native = run_asterism({"convert", folder / "base", folder / "native", "--to", "native", "--json"});
  EXPECT_EQ(native.exit_code, 0) << native.err;
  EXPECT_NE(native.err.find("warning: config.json: compress_ratios holds 16"), std::string::npos) << native.err;
  EXPECT_EQ(nlohmann::json::parse(native.out)["warnings"].size(), 1U);
  const auto hf = run_asterism({"convert", folder / "base", folder / "hf", "--to", "hf", "--json"});
  EXPECT_EQ(nlohmann::json::parse(hf.out)["warnings"].size(), 0U);
}

TEST(CmdConvert, RefusesWrongWishesBeforeWork) {
  const TemporaryFolder folder;
  init_native(folder);
  EXPECT_EQ(run_asterism({"convert", folder / "native", folder / "out", "--to", "gguf"}).exit_code, 2);
  EXPECT_EQ(run_asterism({"convert", folder / "native", folder / "out", "--to", "hf", "--dense", "fp4"}).exit_code, 2);
  EXPECT_EQ(run_asterism({"convert", folder / "none", folder / "out", "--to", "hf"}).exit_code, 2);
  const auto size = run_asterism({"convert", folder / "native", folder / "out", "--to", "hf", "--shard-size", "5 GB"});
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_NE(size.last_error_line().find("--shard-size: expected a size such as 5GB"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_FALSE(fs::exists(folder / "out.incomplete"));
}

TEST(CmdConvert, ADamagedResultEndsWithThree) {
  const TemporaryFolder folder;
  init_native(folder);
  const std::vector<std::string> command = {"convert", folder / "native", folder / "out", "--to", "hf", "--verify"};
  ASSERT_EQ(run_asterism(command).exit_code, 0);
  const fs::path file = folder / "out" / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(run_asterism(command).exit_code, 3);
}

TEST(CmdConvert, AfterAKillTheSecondRunContinuesToTheSameResult) {
  const TemporaryFolder folder;
  init_native(folder);
  const auto command = [&](const std::string& out) {
    return std::vector<std::string>{"convert", folder / "native", folder / out, "--to",         "hf",   "--experts",
                                    "fp32",    "--dense",         "fp32",       "--shard-size", "50KB", "--workers",
                                    "1"};
  };
  ASSERT_EQ(run_asterism(command("whole")).exit_code, 0);
  const auto [rounds, killed] = kill_while_it_writes(command("out"), folder / "out.incomplete", folder / "out");
  EXPECT_GT(killed, 0);
  const auto last = run_asterism(command("out"));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  if (killed < rounds) return;
  EXPECT_NE(last.err.find("continuing a conversion: "), std::string::npos) << last.err;
  EXPECT_TRUE(same_tensors(stored_tensors_of(folder / "out"), stored_tensors_of(folder / "whole")));
  EXPECT_EQ(run_asterism({"diff", folder / "out", folder / "whole"}).exit_code, 0);
}

}  // namespace
}  // namespace asterism::cli
