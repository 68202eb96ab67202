#include "asterism/model/model.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

using testing::relative_difference;
using testing::tiny_batch;
using testing::tiny_config;
using testing::tiny_model;

ForwardOptions double_options() {
  ForwardOptions options;
  options.compute = at::kDouble;
  return options;
}

at::Tensor logits_of(const Model& model, const TokenBatch& batch) {
  const at::NoGradGuard no_grad;
  return forward_logits(model, batch, double_options());
}

// Another token at position j; its label is the same everywhere, only the input changes.
TokenBatch with_token(const TokenBatch& batch, int64_t j, const Config& config) {
  TokenBatch changed = batch;
  changed.id_T = batch.id_T.clone();
  changed.id_T[j] = (batch.id_T[j].item<int64_t>() + 1 + j) % config.vocab_size;
  return changed;
}

// One model per layer kind, so that a leak of one kind cannot hide behind another.
std::vector<Config> configs_of_every_kind() {
  std::vector<Config> configs = {tiny_config()};
  const LayerSpec kinds[] = {{AttentionKind::kSliding, 0, RouterKind::kHash},
                             {AttentionKind::kSliding, 0, RouterKind::kTopK},
                             {AttentionKind::kSparse, 4, RouterKind::kTopK},
                             {AttentionKind::kHeavy, 8, RouterKind::kTopK}};
  for (const LayerSpec& kind : kinds) {
    Config config = tiny_config();
    config.layers = {kind, kind};
    configs.push_back(config);
  }
  return configs;
}

TEST(Causality, ChangingATokenChangesNoLogitBeforeIt) {
  for (const Config& config : configs_of_every_kind()) {
    const Model model = tiny_model(config, at::kDouble);
    const TokenBatch batch = tiny_batch(config, {29});
    const at::Tensor before = logits_of(model, batch);
    for (int64_t j = 0; j < 29; ++j) {
      const at::Tensor after = logits_of(model, with_token(batch, j, config));
      if (j > 0) {
        const double earlier = (after - before).slice(0, 0, j).abs().max().item<double>();
        EXPECT_LE(earlier, 1e-12) << "token " << j << " of a model with " << config.num_layers() << " layers";
      }
      EXPECT_GT((after - before)[j].abs().max().item<double>(), 1e-9) << "token " << j << " has no effect on itself";
    }
  }
}

TEST(Causality, CompressedEntriesReachFarBeyondTheWindow) {
  // The test above could pass with dead compressed paths: token 0 must change later logits outside every window.
  for (const AttentionKind kind : {AttentionKind::kSparse, AttentionKind::kHeavy}) {
    Config config = tiny_config();
    config.layers = {{kind, kind == AttentionKind::kSparse ? 4 : 8, RouterKind::kTopK}};
    config.index_topk = 16;
    const Model model = tiny_model(config, at::kDouble);
    const TokenBatch batch = tiny_batch(config, {29});
    const at::Tensor gap = logits_of(model, with_token(batch, 0, config)) - logits_of(model, batch);
    EXPECT_GT(gap[28].abs().max().item<double>(), 1e-9);
    // The last token of a window is the first query that sees its entry: window + ratio positions later nothing else.
    Config sliding = config;
    sliding.layers = {{AttentionKind::kSliding, 0, RouterKind::kTopK}};
    const Model plain = tiny_model(sliding, at::kDouble);
    const at::Tensor quiet = logits_of(plain, with_token(batch, 0, sliding)) - logits_of(plain, batch);
    EXPECT_EQ(quiet[28].abs().max().item<double>(), 0.0);
  }
}

TEST(Documents, AreIsolatedInEveryLayerKind) {
  for (const Config& config : configs_of_every_kind()) {
    const Model model = tiny_model(config, at::kDouble);
    const TokenBatch batch = tiny_batch(config, {13, 1, 17});
    const at::Tensor before = logits_of(model, batch);
    for (const int64_t j : {0, 6, 12, 13, 14, 20, 30}) {
      const at::Tensor after = logits_of(model, with_token(batch, j, config));
      for (int64_t d = 0; d < 3; ++d) {
        const int64_t begin = batch.documents.offsets[d], end = batch.documents.offsets[d + 1];
        if (j >= begin && j < end) continue;
        EXPECT_LE((after - before).slice(0, begin, end).abs().max().item<double>(), 1e-12)
            << "token " << j << " reaches document " << d;
      }
    }
  }
}

struct Gradients {
  double loss = 0.0;
  int64_t tokens = 0;
  std::vector<std::pair<std::string, at::Tensor>> leaves;
};

Gradients loss_and_gradients(const std::vector<TokenBatch>& batches, const ForwardOptions& options,
                             const LossOptions& loss) {
  Gradients result;
  Model model = tiny_model(at::kDouble);
  result.leaves = testing::record_gradients(model);
  for (const TokenBatch& batch : batches) {
    const LossSums sums = forward_loss(model, batch, options, loss);
    at::Tensor total = sums.token_loss;
    if (sums.mtp_loss.defined()) total = total + 0.3 * sums.mtp_loss;
    if (sums.balance_loss.defined()) total = total + 0.1 * sums.balance_loss;
    if (sums.indexer_loss.defined()) total = total + sums.indexer_loss;
    total.backward();
    result.loss += total.item<double>();
    result.tokens += batch.trained_tokens();
  }
  return result;
}

TEST(Documents, PackedEqualsSeparateInLossAndAllGradients) {
  const Config config = tiny_config();
  const TokenBatch packed = tiny_batch(config, {5, 11, 1, 16});
  std::vector<TokenBatch> separate;
  for (int64_t d = 0; d < packed.documents.num_documents(); ++d) {
    const at::Tensor ids = packed.id_T.slice(0, packed.documents.offsets[d], packed.documents.offsets[d + 1]);
    separate.push_back(make_token_batch(ids, ids, {ids.size(0)}));
  }
  ForwardOptions options = double_options();
  options.balance = options.indexer_kl = true;
  LossOptions loss;
  loss.mtp = true;
  const Gradients a = loss_and_gradients({packed}, options, loss), b = loss_and_gradients(separate, options, loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_NEAR(a.loss, b.loss, 1e-10 * std::abs(b.loss));
  for (size_t i = 0; i < a.leaves.size(); ++i) {
    const at::Tensor left = a.leaves[i].second.grad(), right = b.leaves[i].second.grad();
    ASSERT_EQ(left.defined(), right.defined()) << a.leaves[i].first;
    // Layer 0's attention site has exact zero gradients that come out as noise: compared absolutely.
    const double top = std::max(1e-3, right.abs().max().item<double>());
    EXPECT_LE((left - right).abs().max().item<double>(), 1e-9 * top) << a.leaves[i].first;
  }
}

TEST(Documents, ABatchOfTwoLengthsIsTwoBatchesOfOne) {
  const Config config = tiny_config();
  const Model model = tiny_model(at::kDouble);
  const TokenBatch both = tiny_batch(config, {9, 21});
  const at::Tensor ids = both.id_T;
  const at::Tensor first = logits_of(model, make_token_batch(ids.slice(0, 0, 9), ids.slice(0, 0, 9), {9}));
  const at::Tensor second = logits_of(model, make_token_batch(ids.slice(0, 9), ids.slice(0, 9), {21}));
  EXPECT_LE(relative_difference(logits_of(model, both), at::cat({first, second})), 1e-12);
}

TEST(Recomputation, AllModesGiveBitwiseTheSameGradients) {
  const Config config = tiny_config();
  const TokenBatch batch = tiny_batch(config, {19, 14});
  ForwardOptions options;
  options.balance = options.indexer_kl = options.training = true;
  std::vector<std::vector<std::pair<std::string, at::Tensor>>> runs;
  for (const Recompute mode : {Recompute::kBlocks, Recompute::kSelective, Recompute::kNone}) {
    LossOptions loss;
    loss.mtp = true;
    loss.recompute = mode;
    Model model = tiny_model(at::kFloat);
    runs.push_back(testing::record_gradients(model));
    const LossSums sums = forward_loss(model, batch, options, loss);
    (sums.token_loss + 0.3 * sums.mtp_loss + 0.1 * sums.balance_loss + sums.indexer_loss).backward();
  }
  for (size_t i = 0; i < runs[0].size(); ++i) {
    for (size_t mode = 1; mode < runs.size(); ++mode) {
      const at::Tensor a = runs[0][i].second.grad(), b = runs[mode][i].second.grad();
      ASSERT_TRUE(a.defined() && b.defined()) << runs[0][i].first;
      EXPECT_TRUE(at::equal(a, b)) << runs[0][i].first << ", mode " << mode;
    }
  }
}

TEST(Recomputation, ReplaysRecordedChoices) {
  // With the choices of another input given, routing and selection follow them and not the input's own scores.
  const Config config = tiny_config();
  const Model model = tiny_model(at::kDouble);
  const TokenBatch one = tiny_batch(config, {21}, 1), other = tiny_batch(config, {21}, 2);
  const at::NoGradGuard no_grad;
  const LossSums recorded = forward_loss(model, one, double_options());
  const auto context = make_stream_context(model.config, other, double_options());
  LossSums replayed;
  replayed.decisions = recorded.decisions;
  const at::Tensor with_foreign = forward_trunk(model, context, Recompute::kBlocks, replayed);
  LossSums fresh;
  const at::Tensor with_own = forward_trunk(model, context, Recompute::kBlocks, fresh);
  EXPECT_GT(relative_difference(with_foreign, with_own), 1e-3);
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    EXPECT_TRUE(at::equal(replayed.decisions[i]->expert_TK, recorded.decisions[i]->expert_TK));
  }
}

TEST(Indexer, GetsNoGradientWithoutItsOwnLoss) {
  Model model = tiny_model(at::kFloat);
  const auto leaves = testing::record_gradients(model);
  forward_loss(model, tiny_batch(model.config, {33}), {}).token_loss.backward();
  int64_t indexer = 0;
  for (const auto& [name, leaf] : leaves) {
    if (name.find(".indexer.") != std::string::npos) {
      EXPECT_FALSE(leaf.grad().defined()) << name;
      ++indexer;
    } else if (name.rfind("mtp.", 0) != 0) {
      EXPECT_TRUE(leaf.grad().defined()) << name;
    }
  }
  EXPECT_EQ(indexer, 12);
}

TEST(Model, RefusesIdsOutsideTheVocabulary) {
  const Model model = tiny_model(at::kFloat);
  const at::Tensor ids = at::tensor({1, 97, 2}, at::kLong);
  EXPECT_THROW(forward_loss(model, make_token_batch(ids, ids, {3}), {}), c10::Error);
  EXPECT_THROW(forward_loss(model, make_token_batch(-ids, ids, {3}), {}), c10::Error);
}

TEST(Model, Bf16StaysNearFp32) {
  const Config config = tiny_config();
  const TokenBatch batch = tiny_batch(config, {24});
  const Model exact = tiny_model(at::kFloat);
  ForwardOptions options;
  options.compute = at::kBFloat16;
  const at::NoGradGuard no_grad;
  const double fp32 = forward_loss(exact, batch, {}).token_loss.item<double>();
  const double bf16 = forward_loss(exact, batch, options).token_loss.item<double>();
  EXPECT_NEAR(bf16, fp32, 0.02 * fp32);
  EXPECT_NE(bf16, fp32);
}

}  // namespace
}  // namespace asterism::model
