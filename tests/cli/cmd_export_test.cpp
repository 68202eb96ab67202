#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "tests/checkpoint/merge_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::adapter_files::StoredAdapter;
using checkpoint::merge_files::every_matrix;
using checkpoint::merge_files::matrices;
using checkpoint::merge_files::pairs_of_size;
using checkpoint::merge_files::released_base;
using checkpoint::merge_files::write_pairs;
using ExportRecord = nlohmann::json;
using testing::kill_while_it_writes;
using testing::run_asterism;
using testing::same_tensors;
using testing::stored_tensors_of;
using testing::TemporaryFolder;
using ExportWords = std::vector<std::string>;

/// A base "base" and an adapter "adapter" on every matrix of it, and the commands that export it into "out".
class CmdExport : public ::testing::Test {
 protected:
  void write(double size = 1.0, const checkpoint::WriteOptions& base = released_base()) {
    config_ = testing::write_conversion_source(folder_ / "base", 1, base);
    write_pairs(folder_ / "adapter", config_, pairs_of_size(config_, every_matrix(config_), size));
  }

  ExportWords command(const std::string& to, const ExportWords& more = {}, const std::string& out = "out") const {
    ExportWords words = {"export", "--model", folder_ / "base", "--adapter",  folder_ / "adapter",
                         "--to",   to,        "--out",          folder_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  ExportRecord record(const std::string& folder = "out") const {
    return ExportRecord::parse(read_text(folder_ / folder / "export.json"));
  }

  /// The command ends with 2 and an error that says `part`, before anything is written.
  void expect_refused(const ExportWords& words, const std::string& part) const {
    const auto result = run_asterism(words);
    EXPECT_EQ(result.exit_code, kWrongInput) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    for (const std::string& name : folder_.entries()) EXPECT_FALSE(name.starts_with("out.")) << name;
  }

  TemporaryFolder folder_;
  model::Config config_;
};

TEST_F(CmdExport, MergesInTheFormOfTheBaseAndProvesIt) {
  write();
  folder_.write("base/tokenizer.json", "{}");
  const auto result = run_asterism(command("merged"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder_.entries(), (std::set<std::string>{"adapter", "base", "out"}));
  EXPECT_NE(result.out.find("experts (8), FP4: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("proved: the merged file gives the logits"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("MB of memory, "), std::string::npos) << result.err;
  EXPECT_EQ(read_text(folder_ / "out" / "tokenizer.json"), "{}");
  EXPECT_EQ(ExportRecord::parse(read_text(folder_ / "out" / "config.json")),
            ExportRecord::parse(read_text(folder_ / "base" / "config.json")));
  const auto before = stored_tensors_of(folder_ / "base"), after = stored_tensors_of(folder_ / "out");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, tensor] : before) EXPECT_EQ(after.at(name).scalar_type(), tensor.scalar_type()) << name;

  const ExportRecord json = record();
  EXPECT_EQ(json["to"], "merged");
  EXPECT_EQ(json["layout"], "native");
  EXPECT_EQ(json["proof"]["holds"], true);
  EXPECT_GT(json["proof"]["effect"], json["proof"]["error"]);
  EXPECT_EQ(json["proof"]["ids"].size(), 186U);
  EXPECT_EQ(json["proof"]["merged_in_fp32"], json["proof"]["adapted_matrices"]);
  EXPECT_EQ(json["model"]["fingerprint"]["weights"].get<std::string>().size(), 32U);
  EXPECT_EQ(json["adapter"]["fingerprint"]["weights"].get<std::string>().size(), 32U);
  for (const char* file : {"config.json", "tokenizer.json", "conversion.json", "model.safetensors"}) {
    EXPECT_EQ(json["files"][file]["bytes"], fs::file_size(folder_ / "out" / file)) << file;
  }
}

TEST_F(CmdExport, LayoutAndStorageAreChosen) {
  write();
  const auto result = run_asterism(
      command("merged", {"--layout", "hf", "--experts", "bf16", "--dense", "fp32", "--shard-size", "500KB", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ExportRecord::parse(result.out), record());
  const auto tensors = stored_tensors_of(folder_ / "out");
  EXPECT_EQ(tensors.at("model.layers.1.mlp.experts.down_proj").scalar_type(), at::kBFloat16);
  EXPECT_EQ(tensors.at("model.layers.1.self_attn.o_a_proj.weight").scalar_type(), at::kFloat);
  EXPECT_TRUE(fs::exists(folder_ / "out" / "model.safetensors.index.json"));
  EXPECT_FALSE(ExportRecord::parse(read_text(folder_ / "out" / "config.json")).contains("quantization_config"));
}

TEST_F(CmdExport, BothProfilesOfAnAdapterAreProvedAndReadAgain) {
  write();
  for (const std::string profile : {"peft", "per-expert"}) {
    const auto result = run_asterism(command("peft", {"--profile", profile}, profile));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const ExportRecord json = record(profile);
    EXPECT_EQ(json["profile"], profile);
    EXPECT_EQ(json["proof"]["holds"], true);
    EXPECT_EQ(json["proof"]["error"], 0.0);
    const auto names = checkpoint::Source::open(folder_ / profile, "adapter_model").names();
    const bool single =
        std::ranges::find(names, checkpoint::adapter_files::kRoot +
                                     "model.layers.2.mlp.experts.1.up_proj.lora_B.weight") != names.end();
    EXPECT_EQ(single, profile == "per-expert");
    EXPECT_EQ(ExportRecord::parse(read_text(folder_ / profile / "adapter_config.json"))["base_model_name_or_path"],
              (folder_ / "base").string());
  }
  // From either layout back to the other: the same bytes.
  fs::remove_all(folder_ / "adapter");
  fs::rename(folder_ / "per-expert", folder_ / "adapter");
  ASSERT_EQ(run_asterism(command("peft")).exit_code, 0);
  EXPECT_EQ(read_text(folder_ / "out" / "adapter_model.safetensors"),
            read_text(folder_ / "peft" / "adapter_model.safetensors"));
}

TEST_F(CmdExport, AnAdapterThatVanishesIsNoMerge) {
  write(/*size=*/1e-12);
  const auto result = run_asterism(command("merged"));
  EXPECT_EQ(result.exit_code, kNotEqual) << result.err;
  EXPECT_NE(result.err.find("none of "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("the adapter vanishes in rounding: experts (8), FP4: 0 of 921600 adapted weights change"),
            std::string::npos)
      << result.err;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  const ExportRecord json = record("out.unproven");
  for (const ExportRecord& entry : json["adapted"]) {
    EXPECT_EQ(entry["changed"], 0) << entry;
    EXPECT_GT(entry["adapted"], 0) << entry;
  }
}

TEST_F(CmdExport, AnAdapterWithoutEffectIsNotExported) {
  write(/*size=*/0.0);
  for (const std::string to : {"merged", "peft"}) {
    const auto result = run_asterism(command(to));
    EXPECT_EQ(result.exit_code, kNotEqual) << result.err;
    EXPECT_NE(result.err.find("expected that the adapter changes the logits of the base"), std::string::npos)
        << result.err;
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    EXPECT_EQ(record("out.unproven")["proof"]["holds"], false);
    fs::remove_all(folder_ / "out.unproven");
  }
  EXPECT_EQ(run_asterism(command("merged", {"--no-proof"})).exit_code, kNotEqual) << "the counts tell it, too";
}

TEST_F(CmdExport, TheFilesAreReadBackBeforeTheProof) {
  write();
  ASSERT_EQ(run_asterism(command("merged", {"--no-proof"})).exit_code, 0);
  EXPECT_EQ(record()["proof"], ExportRecord({{"skipped", "--no-proof"}}));
  // As if the machine had stopped after the merge and a bit had flipped.
  fs::rename(folder_ / "out", folder_ / "out.unproven");
  fs::remove(folder_ / "out.unproven" / "export.json");
  const fs::path file = folder_ / "out.unproven" / "model.safetensors";
  std::string content = read_text(file);
  content[content.size() - 100] ^= 1;
  std::ofstream(file, std::ios::binary) << content;
  const auto result = run_asterism(command("merged"));
  EXPECT_EQ(result.exit_code, kNotEqual) << result.err;
  EXPECT_NE(result.err.find("model.safetensors: expected "), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(CmdExport, WrongWishesAreRefusedBeforeWork) {
  write();
  expect_refused(command("gguf"), "--to");
  expect_refused(command("peft", {"--profile", "vllm"}), "--profile");
  expect_refused(command("merged", {"--profile", "peft"}), "--profile is about adapters");
  expect_refused(command("peft", {"--layout", "hf"}), "--layout is about weights");
  expect_refused(command("peft", {"--workers", "2"}), "--workers is about weights");
  expect_refused(command("merged", {"--shard-size", "big"}), "--shard-size: expected a size");
  fs::create_directory(folder_ / "out");
  expect_refused(command("merged"), "exists already");
  expect_refused(command("peft"), "exists already");
}

TEST_F(CmdExport, AnAttemptBeforeIsReplacedAndNothingElse) {
  write();
  fs::create_directory(folder_ / "out.unproven");
  folder_.write("out.unproven/mine", "text");
  for (const std::string to : {"peft", "merged"}) {
    const auto result = run_asterism(command(to, {"--no-proof"}));
    EXPECT_EQ(result.exit_code, kWrongInput) << result.err;
    EXPECT_NE(result.err.find("out.unproven"), std::string::npos) << result.err;
    EXPECT_TRUE(fs::exists(folder_ / "out.unproven" / "mine"));
  }
  fs::remove_all(folder_ / "out.unproven");
  write_pairs(folder_ / "out.unproven", config_, pairs_of_size(config_, every_matrix(config_), 2.0));
  EXPECT_EQ(run_asterism(command("peft", {"--no-proof"})).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "out.unproven"));
}

TEST_F(CmdExport, AdaptersThatDoNotFitAreRefusedWithTheirNames) {
  write();
  StoredAdapter golden_adapter;  // of a model with other sizes
  fs::remove_all(folder_ / "adapter");
  fs::create_directory(folder_ / "adapter");
  std::vector<checkpoint::NamedTensor> list;
  for (const auto& [name, tensor] : golden_adapter.tensors) list.push_back({name, tensor});
  checkpoint::write_safetensors(folder_ / "adapter" / "adapter_model.safetensors", list);
  folder_.write("adapter/adapter_config.json", golden_adapter.config.dump());
  for (const std::string to : {"merged", "peft"}) {
    expect_refused(command(to), "tensors of the wrong shape");
    expect_refused(command(to), "tensors that match no matrix of the model");
  }
}

TEST_F(CmdExport, AnAdapterOfAnotherBaseIsRefusedUnlessItIsMeant) {
  write(1.0, {});
  auto weights = checkpoint::read_weights(folder_ / "base", config_).weights;
  weights.embed = weights.embed.flip(0).contiguous();
  checkpoint::write_checkpoint(folder_ / "trained_on", config_, weights);
  ExportRecord json = ExportRecord::parse(read_text(folder_ / "adapter" / "adapter_config.json"));
  json["base_model_name_or_path"] = (folder_ / "trained_on").string();
  folder_.write("adapter/adapter_config.json", json.dump());
  expect_refused(command("merged"), "holds other weights (model.embed_tokens.weight differs)");
  expect_refused(command("peft"), "holds other weights");
  EXPECT_EQ(run_asterism(command("peft", {"--any-base"})).exit_code, 0);
}

// A model of terabytes, all of it a hole in the file: no machine has the memory to prove it.
TEST_F(CmdExport, AProofThatMemoryCannotHoldIsRefusedUnlessItIsWaived) {
  auto json = testing::conversion_config_json(0);
  json["vocab_size"] = 1'000'000'000;
  fs::create_directory(folder_ / "base");
  folder_.write("base/config.json", json.dump());
  config_ = model::parse_config(json, "huge");
  std::vector<checkpoint::PlannedTensor> planned;
  uint64_t bytes = 0;
  for (const auto& spec : model::tensor_specs(config_)) {
    checkpoint::PlannedTensor tensor{spec.name, spec.role == model::TensorRole::kTable ? at::kLong : at::kFloat,
                                     spec.shape};
    tensor.bytes = c10::elementSize(tensor.dtype) * static_cast<uint64_t>(c10::multiply_integers(spec.shape));
    bytes += tensor.bytes;
    planned.push_back(tensor);
  }
  const std::string header = checkpoint::plan_safetensors(planned);
  fs::resize_file(folder_.write("base/model.safetensors", header), header.size() + bytes);
  write_pairs(folder_ / "adapter", config_, pairs_of_size(config_, matrices({"self_attn.q_a_proj.weight"}, {0}), 1.0));
  expect_refused(command("peft"), "--no-proof");
  expect_refused(command("merged"), "MB of memory, and ");
  EXPECT_EQ(run_asterism(command("peft", {"--no-proof"})).exit_code, 0);
  EXPECT_EQ(record()["proof"], ExportRecord({{"skipped", "--no-proof"}}));
}

TEST_F(CmdExport, AfterAKillTheSecondRunContinuesToTheSameResult) {
  write(1.0, {});
  const ExportWords more = {"--shard-size", "50KB", "--workers", "1", "--no-proof"};
  ASSERT_EQ(run_asterism(command("merged", more, "whole")).exit_code, 0);
  const auto [rounds, killed] =
      kill_while_it_writes(command("merged", more), folder_ / "out.unproven.incomplete", folder_ / "out");
  EXPECT_GT(killed, 0);
  const auto last = run_asterism(command("merged", {"--shard-size", "50KB", "--workers", "1"}));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  if (killed < rounds) return;
  EXPECT_NE(last.err.find("continuing a merge: "), std::string::npos) << last.err;
  EXPECT_TRUE(same_tensors(stored_tensors_of(folder_ / "out"), stored_tensors_of(folder_ / "whole")));
  EXPECT_EQ(record()["adapted"], record("whole")["adapted"]);
}

}  // namespace
}  // namespace asterism::cli
