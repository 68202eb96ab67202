#include "asterism/model/initialize.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

std::vector<at::Tensor> all_tensors(uint64_t seed, int threads) {
  at::set_num_threads(threads);
  const Config config = testing::tiny_config();
  Weights weights = initialize_weights(config, seed, at::kFloat);
  std::vector<at::Tensor> tensors;
  for_each_tensor(config, weights, [&](const TensorSpec&, at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

TEST(InitializeWeights, DependsOnTheSeedAndNotOnThreads) {
  const auto a = all_tensors(7, 1), b = all_tensors(7, 2), c = all_tensors(8, 1);
  at::set_num_threads(1);
  bool differs = false;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i]));
    differs = differs || !at::equal(a[i], c[i]);
  }
  EXPECT_TRUE(differs);
}

TEST(InitializeWeights, PartsAreThoseOfTheWhole) {
  const Config config = testing::tiny_config();
  Weights weights = initialize_weights(config, 7, at::kFloat);
  for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role == TensorRole::kTable) {
      at::Tensor rows = at::empty({3, spec.shape[1]}, at::kLong);
      initial_table(config, spec, 7, 5, 3, rows.data_ptr<int64_t>());
      EXPECT_TRUE(at::equal(rows, tensor.narrow(0, 5, 3))) << spec.name;
      return;
    }
    const int64_t first = tensor.numel() / 3, count = tensor.numel() - first;
    at::Tensor part = at::empty({count});
    initial_values(config, spec, 7, first, count, part.data_ptr<float>());
    EXPECT_TRUE(at::equal(part, tensor.flatten().narrow(0, first, count))) << spec.name;
  });
}

TEST(InitializeWeights, FollowsThePublishedInitialisers) {
  const Config config = testing::tiny_config();
  Weights weights = initialize_weights(config, 1, at::kBFloat16);
  for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    const at::Tensor values = tensor.to(at::kDouble);
    if (spec.role == TensorRole::kMatrix) {
      EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << spec.name;
      const double n = static_cast<double>(values.numel());
      EXPECT_NEAR(values.square().mean().sqrt().item<double>(), 0.02, 0.02 * 4 / std::sqrt(n) + 1e-4) << spec.name;
    } else if (spec.role == TensorRole::kNorm || spec.name.ends_with("scale")) {
      EXPECT_TRUE(values.eq(1.0).all().item<bool>()) << spec.name;
    } else if (spec.name.ends_with("base") || spec.name.ends_with("sinks") || spec.name.ends_with("position_bias") ||
               spec.role == TensorRole::kRouterBias) {
      EXPECT_TRUE(values.eq(0.0).all().item<bool>()) << spec.name;
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << spec.name;
    }
  });
}

TEST(InitializeWeights, HashTablesNameDistinctExperts) {
  const Config config = testing::tiny_config();
  const Weights weights = initialize_weights(config, 1, at::kFloat);
  const at::Tensor table = weights.layers[0].moe.moe.tid2eid;
  EXPECT_EQ(table.scalar_type(), at::kLong);
  std::set<int64_t> used;
  for (int64_t v = 0; v < table.size(0); ++v) {
    std::set<int64_t> row;
    for (int64_t k = 0; k < table.size(1); ++k) row.insert(table[v][k].item<int64_t>());
    EXPECT_EQ(static_cast<int64_t>(row.size()), table.size(1)) << "token " << v;
    used.insert(row.begin(), row.end());
  }
  EXPECT_EQ(static_cast<int64_t>(used.size()), config.num_experts);
  EXPECT_EQ(*used.begin(), 0);
  EXPECT_EQ(*used.rbegin(), config.num_experts - 1);
}

}  // namespace
}  // namespace asterism::model
