// Every case of the Hugging Face reference: logits, loss, choices, intermediate values and all gradients.

#include <gtest/gtest.h>

#include <map>

#include "asterism/core/error.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"

namespace asterism::testing {
namespace {

struct CaseName {
  std::string config, name;
};

std::vector<CaseName> all_cases() {
  std::vector<CaseName> cases;
  for (const std::string& config : golden_configs("hf")) {
    for (const std::string& name : golden_cases(config)) cases.push_back({config, name});
  }
  return cases;
}

class HfCase : public ::testing::TestWithParam<CaseName> {
 protected:
  std::string path(const std::string& ending = "") const {
    return "hf/" + GetParam().config + "/" + GetParam().name + ending + ".safetensors";
  }
  std::string label() const { return GetParam().config + "/" + GetParam().name; }
};

TEST_P(HfCase, LogitsLossAndGradients) {
  const GoldenFile golden(path());
  model::Model model = golden_model(GetParam().config, at::kFloat);
  const auto leaves = record_all(model);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"));
  const model::LossSums sums = model::forward_loss(model, batch, {});
  EXPECT_EQ(batch.trained_tokens(), static_cast<int64_t>(golden.scalar("trained_tokens")));
  const double want = golden.scalar("loss_sum");
  EXPECT_NEAR(sums.token_loss.item<double>(), want, 2e-6 * std::max(1.0, want));
  sums.token_loss.backward();
  expect_gradients(leaves, golden, label());
  if (has_golden_file(path(".grads"))) expect_gradients(leaves, GoldenFile(path(".grads")), label());

  const at::NoGradGuard no_grad;
  const at::Tensor logits = model::forward_logits(model, batch, {});
  const at::Tensor want_logits = golden.tensor("logits").flatten(0, 1);
  EXPECT_LE(relative_difference(logits, want_logits), 1e-5) << label();
}

// Reference tensors are [B, S, ...] or [B * S, ...]; ours [B * S, ...].
at::Tensor flatten_rows(const at::Tensor& want, const at::Tensor& got) {
  return want.dim() == got.dim() ? want : want.flatten(0, 1);
}

// Our experts and their weights are in slot order of the table for hash layers: sort both by expert id.
std::pair<at::Tensor, at::Tensor> by_expert(const at::Tensor& ids, const at::Tensor& weights) {
  const auto [sorted, order] = ids.sort(1);
  return {sorted, weights.gather(1, order)};
}

// A [B, T] reference table of entries of each row, against ours of all rows: entry c of row b is b * T + c.
void expect_same_selection(const at::Tensor& want_BSK, const at::Tensor& got_TK, int64_t entries_of_row,
                           const std::string& where) {
  const int64_t rows = want_BSK.size(0), length = want_BSK.size(1);
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      std::vector<int64_t> want, got;
      for (int64_t k = 0; k < want_BSK.size(2); ++k) {
        const int64_t w = want_BSK[b][t][k].item<int64_t>();
        if (w >= 0) want.push_back(b * entries_of_row + w);
      }
      for (int64_t k = 0; k < got_TK.size(1); ++k) {
        const int64_t g = got_TK[b * length + t][k].item<int64_t>();
        if (g >= 0) got.push_back(g);
      }
      EXPECT_EQ(want, got) << where << ", row " << b << ", token " << t;
    }
  }
}

// Index scores of the reference are [B, S, T] per row; ours [B * S, B * T] with -inf outside the row.
void expect_same_scores(const at::Tensor& want_BST, const at::Tensor& got_TC, const std::string& where) {
  const int64_t rows = want_BST.size(0), length = want_BST.size(1), entries = want_BST.size(2);
  double top = 0.0, gap = 0.0;
  for (int64_t b = 0; b < rows; ++b) {
    const at::Tensor got = got_TC.slice(0, b * length, (b + 1) * length).slice(1, b * entries, (b + 1) * entries);
    const at::Tensor want = want_BST[b];
    EXPECT_TRUE(at::equal(want.isinf(), got.isinf())) << where << ": visibility differs in row " << b;
    if (want.numel() == 0) continue;
    const at::Tensor finite = want.isinf().logical_not();
    top = std::max(top, at::where(finite, want, 0.0).abs().max().item<double>());
    gap = std::max(gap, at::where(finite, want - got, 0.0).abs().max().item<double>());
  }
  EXPECT_LE(gap, 1e-5 * std::max(top, 1e-6)) << where;
}

TEST_P(HfCase, IntermediateValues) {
  if (!has_golden_file(path(".inter"))) return;  // the reference stores them for some cases only
  const GoldenFile golden(path()), inter(path(".inter"));
  const model::Model model = golden_model(GetParam().config, at::kFloat);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"));
  std::map<std::string, at::Tensor> seen;
  model::ForwardOptions options;
  options.probe = [&](std::string_view name, const at::Tensor& value) { seen[std::string(name)] = value.clone(); };
  const at::NoGradGuard no_grad;
  model::forward_logits(model, batch, options);
  int64_t compared = 0;
  for (const std::string& name : inter.below("")) {
    if (!seen.contains(name)) continue;
    const at::Tensor want = inter.tensor(name);
    const std::string where = label() + ", " + name;
    ++compared;
    if (name.ends_with("router_ids")) {
      EXPECT_TRUE(at::equal(std::get<0>(seen[name].sort(1)), want)) << where;
    } else if (name.ends_with("router_weights")) {
      const std::string ids = name.substr(0, name.size() - 7) + "ids";
      EXPECT_LE(relative_difference(by_expert(seen[ids], seen[name]).second, want), 1e-5) << where;
    } else if (name.ends_with("index_topk")) {
      const std::string entries = name.substr(0, name.size() - 10) + "compressed_kv";
      expect_same_selection(want, seen[name], inter.tensor(entries).size(1), where);
    } else if (name.ends_with("index_scores")) {
      expect_same_scores(want, seen[name], where);
    } else {
      EXPECT_LE(relative_difference(seen[name], flatten_rows(want, seen[name])), 1e-5) << where;
    }
  }
  EXPECT_GE(compared, 10 * model.config.num_layers()) << label();
}

INSTANTIATE_TEST_SUITE_P(All, HfCase, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.config + "_" + info.param.name; });

TEST(HfCases, AreThere) {
  EXPECT_GE(all_cases().size(), 24u);
}

}  // namespace
}  // namespace asterism::testing
