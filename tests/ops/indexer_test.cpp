#include "asterism/ops/indexer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using asterism::testing::random_tensor;
using asterism::testing::relative_difference;

struct IndexerProblem {
  Windows windows;
  at::Tensor q, key, weight;
};

IndexerProblem make_problem(const std::vector<int64_t>& lengths, int64_t ratio, int64_t heads, int64_t width) {
  const Documents documents = make_documents(lengths);
  IndexerProblem s{.windows = make_windows(documents, ratio), .q = {}, .key = {}, .weight = {}};
  s.q = random_tensor({documents.num_tokens(), heads, width}, "q");
  s.key = random_tensor({s.windows.num_entries(), width}, "key");
  s.weight = random_tensor({documents.num_tokens(), heads}, "weight");
  return s;
}

double literal_score(const IndexerProblem& s, int64_t t, int64_t c) {
  double score = 0;
  for (int64_t h = 0; h < s.q.size(1); ++h) {
    score += s.weight[t][h].item<double>() * std::max(0.0, at::dot(s.q[t][h], s.key[c]).item<double>());
  }
  return score;
}

std::vector<int64_t> literal_choice(const IndexerProblem& s, int64_t t, int64_t k) {
  std::vector<std::pair<double, int64_t>> candidates;
  const auto begin = s.windows.visible_begin_T[t].item<int64_t>(), end = s.windows.visible_end_T[t].item<int64_t>();
  for (int64_t c = begin; c < end; ++c) candidates.emplace_back(-literal_score(s, t, c), c);
  std::sort(candidates.begin(), candidates.end());
  candidates.resize(std::min<size_t>(candidates.size(), k));
  std::vector<int64_t> choice;
  for (const auto& candidate : candidates) choice.push_back(candidate.second);
  std::sort(choice.begin(), choice.end());
  choice.resize(std::min(k, s.windows.num_entries()), -1);
  return choice;
}

void expect_literal_choice(const IndexerProblem& s, int64_t k) {
  const at::Tensor selected = index_topk(s.q, s.key, s.weight, s.windows, k);
  ASSERT_EQ(selected.sizes(), (at::IntArrayRef{s.q.size(0), std::min(k, s.windows.num_entries())}));
  for (int64_t t = 0; t < s.q.size(0); ++t) {
    const auto* row = selected.const_data_ptr<int64_t>() + t * selected.size(1);
    EXPECT_EQ(std::vector<int64_t>(row, row + selected.size(1)), literal_choice(s, t, k))
        << "query " << t << " k " << k;
  }
}

TEST(IndexTopk, EqualsSortingAllVisibleScores) {
  const IndexerProblem s = make_problem({1, 3, 4, 33, 17}, 2, 3, 4);
  for (const int64_t k : {0, 1, 3, 8, 16, 100}) expect_literal_choice(s, k);
}

TEST(IndexTopk, TiesGoToTheSmallerIndex) {
  IndexerProblem s = make_problem({40, 9}, 2, 2, 3);
  // Small integers: scores are exact and many are equal, zeros of closed ReLUs among them.
  s.q = s.q.round(), s.key = s.key.round(), s.weight = at::ones_like(s.weight);
  for (const int64_t k : {1, 4, 7}) expect_literal_choice(s, k);
  s.key.zero_();
  const at::Tensor selected = index_topk(s.q, s.key, s.weight, s.windows, 3);
  EXPECT_TRUE(at::equal(selected[39], at::tensor({0, 1, 2}, at::kLong)));
}

TEST(IndexTopk, NegativeWeightsCount) {
  IndexerProblem s = make_problem({4}, 1, 1, 1);
  s.q = at::ones({4, 1, 1}, at::kDouble), s.weight = -at::ones({4, 1}, at::kDouble);
  s.key = at::tensor({3., 1., -1., 2.}, at::kDouble).view({4, 1});
  EXPECT_TRUE(at::equal(index_topk(s.q, s.key, s.weight, s.windows, 2)[3], at::tensor({1, 2}, at::kLong)));
}

TEST(IndexTopk, ScoresOfBf16AreFp32) {
  IndexerProblem s = make_problem({64}, 2, 4, 8);
  s.q = s.q.to(at::kBFloat16), s.key = s.key.to(at::kBFloat16), s.weight = s.weight.to(at::kBFloat16);
  const at::Tensor scores = index_scores(s.q, s.key, s.weight, s.windows);
  EXPECT_EQ(scores.scalar_type(), at::kFloat);
  const at::Tensor same = index_topk(s.q.to(at::kFloat), s.key.to(at::kFloat), s.weight.to(at::kFloat), s.windows, 5);
  EXPECT_TRUE(at::equal(index_topk(s.q, s.key, s.weight, s.windows, 5), same));
}

TEST(IndexTopk, TheNumberOfThreadsDoesNotChangeTheChoice) {
  IndexerProblem s = make_problem({700}, 2, 4, 16);
  s.q = s.q.to(at::kFloat), s.key = s.key.to(at::kFloat), s.weight = s.weight.to(at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = index_scores(s.q, s.key, s.weight, s.windows);
  const at::Tensor chosen = index_topk(s.q, s.key, s.weight, s.windows, 20);
  at::set_num_threads(2);
  EXPECT_TRUE(at::equal(index_scores(s.q, s.key, s.weight, s.windows), one));
  EXPECT_TRUE(at::equal(index_topk(s.q, s.key, s.weight, s.windows, 20), chosen));
  at::set_num_threads(before);
}

TEST(IndexTopk, NothingVisibleAndBadInput) {
  const IndexerProblem short_documents = make_problem({3, 2}, 4, 2, 3);
  EXPECT_EQ(
      index_topk(short_documents.q, short_documents.key, short_documents.weight, short_documents.windows, 4).sizes(),
      (at::IntArrayRef{5, 0}));
  const IndexerProblem none = make_problem({}, 4, 2, 3);
  EXPECT_EQ(index_topk(none.q, none.key, none.weight, none.windows, 4).numel(), 0);
  const IndexerProblem s = make_problem({12}, 2, 2, 3);
  EXPECT_THROW(index_topk(s.q, s.key.slice(0, 0, 5), s.weight, s.windows, 4), c10::Error);
  EXPECT_THROW(index_topk(s.q, s.key, s.weight.slice(1, 0, 1), s.windows, 4), c10::Error);
  EXPECT_THROW(index_topk(s.q, s.key, s.weight, s.windows, -1), c10::Error);
  s.q[11].fill_(NAN);
  EXPECT_THROW(index_topk(s.q, s.key, s.weight, s.windows, 2), c10::Error);
}

TEST(IndexScores, EqualTheLiteralSumAndHideTheFuture) {
  const IndexerProblem s = make_problem({5, 1, 14}, 3, 3, 4);
  const at::Tensor scores = index_scores(s.q, s.key, s.weight, s.windows);
  for (int64_t t = 0; t < 20; ++t) {
    for (int64_t c = 0; c < s.windows.num_entries(); ++c) {
      const bool seen =
          c >= s.windows.visible_begin_T[t].item<int64_t>() && c < s.windows.visible_end_T[t].item<int64_t>();
      const double score = scores[t][c].item<double>();
      if (seen) {
        EXPECT_NEAR(score, literal_score(s, t, c), 1e-12);
      } else {
        EXPECT_EQ(score, -INFINITY);
      }
    }
  }
}

}  // namespace
}  // namespace asterism::ops
