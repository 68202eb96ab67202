// What Hugging Face lacks, against the fp64 reference: packed documents, MTP, indexer KL, balance loss, RoPE tables.
// Run in fp32 with the tolerances of an fp32 engine, and in fp64, where only the reference's fp32 storage rounds.

#include <gtest/gtest.h>

#include <map>

#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/safetensors.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"

namespace asterism::testing {
namespace {

struct RefName {
  std::string config;
  at::ScalarType dtype;
};

std::vector<RefName> configs_with(const std::string& file) {
  std::vector<RefName> names;
  for (const std::string& config : golden_configs("ref")) {
    if (!has_golden_file("ref/" + config + "/" + file)) continue;
    names.push_back({config, at::kFloat});
    names.push_back({config, at::kDouble});
  }
  return names;
}

std::string ref_label(const ::testing::TestParamInfo<RefName>& info) {
  return info.param.config + (info.param.dtype == at::kFloat ? "_fp32" : "_fp64");
}

class RefCase : public ::testing::TestWithParam<RefName> {
 protected:
  void SetUp() override { options.compute = GetParam().dtype; }
  std::string file(const std::string& name) const { return "ref/" + GetParam().config + "/" + name; }
  std::vector<int64_t> lengths(const GoldenFile& golden) const {
    const at::Tensor t = golden.tensor("document_lengths");
    return {t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel()};
  }
  model::Model model() const { return golden_model(GetParam().config, GetParam().dtype); }
  double loss_tolerance() const { return GetParam().dtype == at::kFloat ? 2e-6 : 1e-9; }

  model::ForwardOptions options;
};

class PackedCase : public RefCase {};

TEST_P(PackedCase, LogitsStreamsLossAndGradients) {
  const GoldenFile golden(file("packed.safetensors"));
  model::Model m = model();
  const auto leaves = record_all(m);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"), lengths(golden));
  EXPECT_EQ(batch.trained_tokens(), static_cast<int64_t>(golden.scalar("trained_tokens")));
  const model::LossSums sums = model::forward_loss(m, batch, options);
  const double want = golden.scalar("loss_sum");
  EXPECT_NEAR(sums.token_loss.item<double>(), want, loss_tolerance() * std::abs(want));
  sums.token_loss.backward();
  if (has_golden_file(file("packed.grads.safetensors"))) {
    expect_gradients(leaves, GoldenFile(file("packed.grads.safetensors")), GetParam().config + "/packed");
  }
  std::map<std::string, at::Tensor> seen;
  options.probe = [&](std::string_view name, const at::Tensor& value) { seen[std::string(name)] = value.clone(); };
  const at::NoGradGuard no_grad;
  const at::Tensor logits = model::forward_logits(m, batch, options);
  EXPECT_LE(relative_difference(logits, golden.tensor("logits").flatten(0, 1)), 1e-5);
  for (int64_t i = 0; i < m.config.num_layers(); ++i) {
    const std::string layer = "layer." + std::to_string(i) + ".";
    EXPECT_LE(relative_difference(seen[layer + "streams"], golden.tensor(layer + "streams").flatten(0, 1)), 1e-5);
    if (golden.has(layer + "compressed_kv")) {
      EXPECT_LE(
          relative_difference(seen[layer + "compressed_kv"], golden.tensor(layer + "compressed_kv").flatten(0, 1)),
          1e-5);
    }
    if (!golden.has(layer + "chosen")) continue;
    const at::Tensor chosen = golden.tensor(layer + "chosen").squeeze(0), topk = seen[layer + "index_topk"];
    at::Tensor mask = at::zeros({chosen.size(0), chosen.size(1) + 1}, at::kByte);
    mask.scatter_(1, at::where(topk.lt(0), chosen.size(1), topk), 1);
    EXPECT_TRUE(at::equal(mask.slice(1, 0, chosen.size(1)), chosen)) << layer << "chosen";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedCase, ::testing::ValuesIn(configs_with("packed.safetensors")), ref_label);

class MtpCase : public RefCase {
 protected:
  // The block's weights lie under native names, one tensor per expert matrix.
  void load_mtp(model::Model& m) const {
    const GoldenFile stored(file("mtp.weights.safetensors"));
    m.config.num_mtp_layers = 1;
    const int64_t width = m.config.expert_width;
    model::for_each_tensor(m.config, m.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
      if (spec.name.rfind("mtp.", 0) == 0) tensor = at::full(spec.shape, NAN, GetParam().dtype);
    });
    std::map<std::string, at::Tensor> slots;
    model::for_each_tensor(m.config, m.weights,
                           [&](const model::TensorSpec& spec, at::Tensor& tensor) { slots[spec.name] = tensor; });
    for (const std::string& name : stored.below("")) {
      const auto canonical = checkpoint::canonical_name(name);
      ASSERT_TRUE(canonical && slots.contains(canonical->tensor)) << name;
      at::Tensor target = slots[canonical->tensor];
      if (canonical->part) {
        target = target[canonical->part->expert];
        using Matrix = checkpoint::ExpertPart::Matrix;
        if (canonical->part->matrix == Matrix::kGate) target = target.slice(0, 0, width);
        if (canonical->part->matrix == Matrix::kUp) target = target.slice(0, width);
      }
      target.copy_(stored.tensor(name));
    }
  }
};

TEST_P(MtpCase, LossStreamsAndGradients) {
  const GoldenFile golden(file("mtp.safetensors")), grads(file("mtp.grads.safetensors"));
  model::Model m = model();
  load_mtp(m);
  const auto leaves = record_all(m);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"), lengths(golden));
  EXPECT_EQ(batch.mtp_trained_tokens(), static_cast<int64_t>(golden.scalar("mtp_trained_tokens")));
  model::LossOptions loss;
  loss.mtp = true;
  const model::LossSums sums = model::forward_loss(m, batch, options, loss);
  const double want = golden.scalar("mtp_loss_sum");
  EXPECT_NEAR(sums.mtp_loss.item<double>(), want, loss_tolerance() * std::abs(want));
  sums.mtp_loss.backward();
  // The trunk's names are canonical; the block's gradients are stored under native names.
  int64_t compared = 0;
  std::vector<std::pair<std::string, at::Tensor>> trunk;
  for (const auto& leaf : leaves) {
    if (leaf.first.rfind("mtp.", 0) != 0) trunk.push_back(leaf);
  }
  expect_gradients(trunk, grads, GetParam().config + "/mtp, trunk");
  expect_gradients(trunk, golden, GetParam().config + "/mtp, trunk");
  std::map<std::string, at::Tensor> by_name(leaves.begin(), leaves.end());
  for (const std::string& name : grads.below("grad.")) {
    if (name.rfind("mtp.", 0) != 0) continue;
    const auto canonical = checkpoint::canonical_name(name);
    ASSERT_TRUE(canonical) << name;
    at::Tensor got = by_name.at(canonical->tensor).grad();
    ASSERT_TRUE(got.defined()) << name;
    if (canonical->part) {
      using Matrix = checkpoint::ExpertPart::Matrix;
      got = got[canonical->part->expert];
      const int64_t width = m.config.expert_width;
      if (canonical->part->matrix == Matrix::kGate) got = got.slice(0, 0, width);
      if (canonical->part->matrix == Matrix::kUp) got = got.slice(0, width);
    }
    EXPECT_LE(relative_difference(got, grads.tensor("grad." + name)), gradient_tolerance(name)) << name;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(All, MtpCase, ::testing::ValuesIn(configs_with("mtp.safetensors")), ref_label);

class IndexerKlCase : public RefCase {};

TEST_P(IndexerKlCase, ValuesAndGradientsOfBothStages) {
  const GoldenFile golden(file("indexer_kl.safetensors"));
  for (const std::string stage : {"sparse", "dense"}) {
    model::Model m = model();
    const auto leaves = record_all(m);
    const at::Tensor ids = golden.tensor("input_ids");
    const model::TokenBatch batch = golden_batch(ids, ids, lengths(golden));
    options.indexer_kl = true;
    options.dense_attention = stage == "dense";
    const model::LossSums sums = model::forward_loss(m, batch, options);
    const double want = golden.scalar("value." + stage + ".total");
    EXPECT_NEAR(sums.indexer_loss.item<double>(), want, (GetParam().dtype == at::kFloat ? 2e-5 : 1e-9) * want) << stage;
    sums.indexer_loss.backward();
    int64_t compared = 0;
    for (const auto& [name, leaf] : leaves) {
      if (!golden.has(stage + ".grad." + name)) {
        // The loss trains the indexer and nothing else.
        EXPECT_TRUE(!leaf.grad().defined() || leaf.grad().abs().max().item<double>() == 0.0) << stage << ", " << name;
        continue;
      }
      const at::Tensor want_grad = golden.tensor(stage + ".grad." + name);
      EXPECT_LE(relative_difference(leaf.grad(), want_grad), GetParam().dtype == at::kFloat ? 5e-5 : 1e-6)
          << stage << ", " << name;
      ++compared;
    }
    EXPECT_GE(compared, 6) << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, IndexerKlCase, ::testing::ValuesIn(configs_with("indexer_kl.safetensors")), ref_label);

class BalanceCase : public RefCase {};

TEST_P(BalanceCase, ValuesAndGradients) {
  for (const std::string name : {"balance_rows", "balance_packed"}) {
    const GoldenFile golden(file(name + ".safetensors"));
    model::Model m = model();
    const auto leaves = record_all(m);
    const at::Tensor ids = golden.tensor("input_ids");
    std::vector<int64_t> all;
    for (int64_t b = 0; b < ids.size(0); ++b) {
      for (const int64_t length : lengths(golden)) all.push_back(length);
    }
    const model::TokenBatch batch = golden_batch(ids, ids, all);
    options.balance = true;
    const model::LossSums sums = model::forward_loss(m, batch, options);
    const at::Tensor mean = sums.balance_loss / static_cast<double>(all.size());
    const double want = golden.scalar("value.total");
    EXPECT_NEAR(mean.item<double>(), want, (GetParam().dtype == at::kFloat ? 2e-6 : 1e-9) * want) << name;
    mean.backward();
    expect_gradients(leaves, golden, GetParam().config + "/" + name);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BalanceCase, ::testing::ValuesIn(configs_with("balance_rows.safetensors")), ref_label);

TEST(RopeTables, EqualTheReference) {
  int64_t compared = 0;
  for (const std::string& config : golden_configs("ref")) {
    const GoldenFile golden("ref/" + config + "/rope.safetensors");
    const model::Config c = model::read_config(golden_file("hf/" + config + "/config.json"));
    for (const auto& [kind, rope] : {std::pair{"main", c.main_rope}, std::pair{"compress", c.compress_rope}}) {
      const std::string prefix = std::string("value.") + kind + ".";
      EXPECT_LE(relative_difference(ops::rope_frequencies(rope), golden.tensor(prefix + "frequencies")), 1e-14);
      const ops::RopeTable table = ops::make_rope_table(rope, golden.tensor("positions"), at::kDouble);
      EXPECT_LE(relative_difference(table.cos, golden.tensor(prefix + "cos")), 1e-9) << config << " " << kind;
      EXPECT_LE(relative_difference(table.sin, golden.tensor(prefix + "sin")), 1e-9) << config << " " << kind;
      ++compared;
    }
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace asterism::testing
