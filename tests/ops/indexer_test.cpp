#include "asterism/ops/indexer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "asterism/ops/cpu/level.h"
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

// Small integers: fp32 scores are exact, so the choice of the kernels must be that of fp64, ties included.
TEST(IndexTopk, EveryLevelChoosesWhatFp64Chooses) {
  const cpu::Level before = cpu::level();
  for (const auto& [length, heads, width] :
       std::vector<std::array<int64_t, 3>>{{40, 1, 1}, {300, 7, 20}, {900, 13, 33}}) {
    IndexerProblem wide = make_problem({3, length, 1, 70}, 1, heads, width);
    wide.q = wide.q.round(), wide.key = wide.key.round(), wide.weight = wide.weight.round();
    IndexerProblem s = wide;
    s.q = s.q.to(at::kFloat), s.key = s.key.to(at::kFloat), s.weight = s.weight.to(at::kFloat);
    const at::Tensor scores = index_scores(wide.q, wide.key, wide.weight, wide.windows);
    for (const cpu::Level level :
         {cpu::Level::kPortable, cpu::Level::kAvx2, cpu::Level::kAvx512, cpu::Level::kAvx512Bf16}) {
      if (level > cpu::highest_level()) continue;
      cpu::choose_level(level);
      EXPECT_TRUE(at::equal(index_scores(s.q, s.key, s.weight, s.windows).to(at::kDouble), scores));
      for (const int64_t k : {1, 6, 64, 333}) {
        const at::Tensor chosen = index_topk(s.q, s.key, s.weight, s.windows, k);
        EXPECT_TRUE(at::equal(chosen, index_topk(wide.q, wide.key, wide.weight, wide.windows, k)))
            << cpu::level_name(level) << " length " << length << " k " << k;
      }
    }
  }
  cpu::choose_level(before);
}

TEST(IndexTopk, TheKernelsScoresAreCloseToFp64) {
  const IndexerProblem wide = make_problem({200, 90}, 2, 8, 64);
  const at::Tensor expected = index_scores(wide.q, wide.key, wide.weight, wide.windows);
  const at::Tensor got =
      index_scores(wide.q.to(at::kFloat), wide.key.to(at::kFloat), wide.weight.to(at::kFloat), wide.windows);
  const at::Tensor seen = expected.isfinite();
  EXPECT_TRUE(at::equal(got.isfinite(), seen));
  EXPECT_LT(relative_difference(got.masked_select(seen), expected.masked_select(seen)), 1e-6);
}

TEST(IndexTopk, AScoreThatIsNotANumberIsRefusedWhereItIsSeen) {
  IndexerProblem s = make_problem({300}, 2, 4, 8);
  s.q = s.q.to(at::kFloat), s.key = s.key.to(at::kFloat), s.weight = s.weight.to(at::kFloat);
  s.key[149][3] = NAN;  // its window closes with the last token
  EXPECT_THROW(index_topk(s.q, s.key, s.weight, s.windows, 5), c10::Error);
  const auto without_last = make_windows(make_documents({299}), 2);
  EXPECT_NO_THROW(index_topk(s.q.slice(0, 0, 299), s.key.slice(0, 0, 149), s.weight.slice(0, 0, 299), without_last, 5));
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
