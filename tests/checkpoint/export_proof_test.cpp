#include "asterism/checkpoint/export_proof.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/checkpoint/merge_files.h"

namespace asterism::checkpoint {
namespace {

using namespace merge_files;
using asterism::testing::kBf16;
using asterism::testing::stored_tensors_of;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;

constexpr uint64_t kAnyMemory = std::numeric_limits<uint64_t>::max();

/// A base, an adapter on every matrix, and the merged checkpoint, below a folder.
model::Config write_merged(const TemporaryFolder& folder, const WriteOptions& base, const Storage& storage = {},
                           double size = 1.0) {
  const auto config = write_conversion_source(folder / "base", 1, base);
  write_pairs(folder / "adapter", config, pairs_of_size(config, every_matrix(config), size));
  merge(folder / "base", folder / "adapter", folder / "merged", Spelling::kNative, storage);
  return config;
}

Proof prove(const TemporaryFolder& folder, const std::string& adapter = "adapter", uint64_t memory = kAnyMemory) {
  return prove_merged(folder / "base", folder / adapter, folder / "merged", memory);
}

const ProofCheck& check_of(const Proof& proof, const std::string& name) {
  const auto found = std::ranges::find(proof.checks, name, &ProofCheck::name);
  if (found == proof.checks.end()) throw std::runtime_error("no check " + name);
  return *found;
}

/// Writes the file again with other values of one tensor.
void change_tensor(const fs::path& folder, const std::string& name,
                   const std::function<at::Tensor(at::Tensor)>& change) {
  const Source source = Source::open(folder);
  const fs::path file = source.file_of(name);
  std::vector<NamedTensor> tensors;
  for (const std::string& other : source.names()) {
    if (source.file_of(other) != file) continue;
    const at::Tensor values = source.tensor(other).clone();
    tensors.push_back({other, other == name ? change(values) : values});
  }
  write_safetensors(file, tensors);
}

TEST(ExportProof, InputsFollowFromTheSeedAndReachEveryCompression) {
  const auto config = model::parse_config(asterism::testing::conversion_config_json(0), "test");
  const ProofInputs inputs = proof_inputs(config), again = proof_inputs(config), other = proof_inputs(config, 1);
  EXPECT_EQ(inputs.ids, again.ids);
  EXPECT_NE(inputs.ids, other.ids);
  EXPECT_GT(inputs.lengths.front(), 128);  // of the heavy layer
  EXPECT_GT(inputs.lengths.size(), 2U);
  int64_t total = 0;
  for (const int64_t length : inputs.lengths) total += length;
  EXPECT_EQ(total, static_cast<int64_t>(inputs.ids.size()));
  EXPECT_LT(*std::ranges::max_element(inputs.ids), config.vocab_size);
  EXPECT_GE(*std::ranges::min_element(inputs.ids), 0);
}

TEST(ExportProof, AMergeInFp32IsTheAdapterUpToRounding) {
  const TemporaryFolder folder;
  write_merged(folder, {});
  const Proof proof = prove(folder);
  EXPECT_TRUE(proof.holds()) << proof.failures();
  EXPECT_GT(proof.effect, 1e-2);
  EXPECT_LE(proof.error, 1e-5);
  EXPECT_EQ(proof.merged_in_fp32, proof.adapted);
  EXPECT_LE(check_of(proof, "adapter").found, 1e-5);
}

TEST(ExportProof, ARoundedMergeIsExactlyTheRoundedAdapter) {
  for (const auto& [base, storage] : {std::pair<WriteOptions, Storage>{released_base(), {}},
                                      {released_base(), {.experts = kBf16, .dense = kBf16}},
                                      {WriteOptions{}, {.experts = Form::fp4(), .dense = Form::fp8()}}}) {
    const TemporaryFolder folder;
    write_merged(folder, base, storage);
    const Proof proof = prove(folder);
    EXPECT_TRUE(proof.holds()) << proof.failures();
    EXPECT_LE(check_of(proof, "file").found, 1e-6);
    EXPECT_GT(proof.error, 1e-5) << "rounding shows";
    const bool rounds_the_base = !base.storage.experts;
    EXPECT_EQ(proof.reencoding > 1e-5, rounds_the_base) << proof.reencoding;
  }
}

// One changed matrix, and the factor two of a scale of one expert.
TEST(ExportProof, FindsWhatDiffersInTheFile) {
  const TemporaryFolder folder;
  write_merged(folder, {});
  change_tensor(folder / "merged", "layers.1.attn.wo_b.weight",
                [](const at::Tensor& tensor) { return tensor + 1e-3 * at::randn_like(tensor); });
  const Proof proof = prove(folder);
  EXPECT_FALSE(proof.holds());
  EXPECT_TRUE(check_of(proof, "adapter").holds());
  EXPECT_FALSE(check_of(proof, "file").holds());
  EXPECT_NE(proof.failures().find("expected that the merged file gives the logits"), std::string::npos)
      << proof.failures();
}

TEST(ExportProof, FindsAnExpertWithTheScaleOfAnother) {
  const TemporaryFolder folder;
  write_merged(folder, released_base());
  change_tensor(folder / "merged", "layers.2.ffn.experts.1.w2.scale",
                [](const at::Tensor& tensor) { return tensor.view(at::kByte).add(1).view(at::kFloat8_e8m0fnu); });
  EXPECT_FALSE(check_of(prove(folder), "file").holds());
}

// What a merge of experts in the wrong order of columns would give is another adapter's merge.
TEST(ExportProof, AnotherAdapterDoesNotHold) {
  const TemporaryFolder folder;
  const auto config = write_merged(folder, released_base());
  auto pairs = pairs_of_size(config, every_matrix(config), 1.0);
  ops::LoraPair& pair = *pairs.layers[1].moe.moe.down.lora;
  pair.b_NR = pair.b_NR.view({160, 2, 3}).transpose(1, 2).reshape({160, 6}).contiguous();
  write_pairs(folder / "permuted", config, pairs);
  const Proof proof = prove(folder, "permuted");
  EXPECT_FALSE(check_of(proof, "file").holds());
  EXPECT_TRUE(check_of(proof, "adapter").holds());
}

TEST(ExportProof, AnAdapterOfZerosHasNoEffect) {
  const TemporaryFolder folder;
  write_merged(folder, released_base(), {}, /*size=*/0.0);
  const Proof proof = prove(folder);
  EXPECT_EQ(proof.effect, 0.0);
  EXPECT_FALSE(proof.holds());
  EXPECT_NE(proof.failures().find("expected that the adapter changes the logits of the base"), std::string::npos);
  EXPECT_TRUE(check_of(proof, "file").holds());
}

TEST(ExportProof, AnAdapterOfTheMtpBlockAloneHasAnEffect) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 1, {});
  write_pairs(folder / "adapter", config, pairs_of_size(config, {"mtp.0.self_attn.q_b_proj.weight"}, 1.0));
  merge(folder / "base", folder / "adapter", folder / "merged");
  const Proof proof = prove(folder);
  EXPECT_TRUE(proof.holds()) << proof.failures();
}

TEST(ExportProof, SavedModulesAreProvedAsWell) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  model::Weights tuned = read_weights(folder / "base", config, {.matrix_dtype = at::kFloat}).weights;
  tuned.lm_head = tuned.lm_head * 1.7;
  tuned.layers[0].moe.moe.tid2eid = 2 - tuned.layers[0].moe.moe.tid2eid;
  write_pairs(folder / "adapter", config, tuned, {"lm_head", "mlp.gate"});
  merge(folder / "base", folder / "adapter", folder / "merged", Spelling::kModule);
  const Proof proof = prove(folder);
  EXPECT_TRUE(proof.holds()) << proof.failures();
  EXPECT_EQ(proof.adapted, 0);
}

TEST(ExportProof, WithLittleMemoryLargeMatricesKeepTheirPair) {
  const TemporaryFolder folder;
  const auto config = write_merged(folder, released_base());
  const uint64_t needed = proof_memory(config, checkpoint_bytes(folder / "base"), checkpoint_bytes(folder / "merged"));
  const Proof proof = prove(folder, "adapter", needed);
  EXPECT_TRUE(proof.holds()) << proof.failures();
  EXPECT_GT(proof.merged_in_fp32, 0);
  EXPECT_LT(proof.merged_in_fp32, proof.adapted);
}

TEST(ExportProof, AWrittenAdapterIsComparedWithItsSource) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 1, released_base());
  const auto pairs = pairs_of_size(config, every_matrix(config), 1.0);
  write_pairs(folder / "adapter", config, pairs);
  write_adapter(folder / "per-expert", config, pairs, adapter_files::rank_two(), "", true, AdapterLayout::kPerExpert);
  write_pairs(folder / "other", config, pairs_of_size(config, every_matrix(config), 1.001));
  const Proof proof = prove_adapter(folder / "base", folder / "adapter", folder / "per-expert");
  EXPECT_TRUE(proof.holds()) << proof.failures();
  EXPECT_GT(proof.effect, 1e-2);
  EXPECT_EQ(proof.error, 0.0);
  EXPECT_FALSE(prove_adapter(folder / "base", folder / "adapter", folder / "other").holds());
  write_pairs(folder / "zero", config, pairs_of_size(config, every_matrix(config), 0.0));
  EXPECT_FALSE(prove_adapter(folder / "base", folder / "zero", folder / "zero").holds());
}

}  // namespace
}  // namespace asterism::checkpoint
