#include "asterism/ops/indexer_kl.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "asterism/ops/cpu/level.h"
#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using asterism::testing::expect_gradients_match;
using asterism::testing::Inputs;
using asterism::testing::Outputs;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;

struct KlProblem {
  Windows windows;
  IndexerTeacher teacher;
  at::Tensor q, key, weight, selected;

  at::Tensor loss() const { return indexer_kl(teacher, q, key, weight, selected, windows); }
  KlProblem as(at::ScalarType type) const {
    KlProblem other = *this;
    for (at::Tensor* x : {&other.teacher.q_THP, &other.teacher.entries_CP, &other.q, &other.key, &other.weight}) {
      *x = x->to(type);
    }
    other.teacher.lse_TH = teacher.lse_TH.to(type == at::kDouble ? at::kDouble : at::kFloat);
    return other;
  }
};

// The first `k` of every other entry that a query sees; none for every fifth query.
at::Tensor some_lists(const Windows& windows, int64_t num_tokens, int64_t k) {
  const at::Tensor lists = at::full({num_tokens, k}, -1, at::kLong);
  for (int64_t t = 0; t < num_tokens; ++t) {
    int64_t used = 0;
    const auto begin = windows.visible_begin_T[t].item<int64_t>(), end = windows.visible_end_T[t].item<int64_t>();
    for (int64_t c = begin + t % 2; c < end && used < k && t % 5 != 4; c += 2) {
      lists.data_ptr<int64_t>()[t * k + used++] = c;
    }
  }
  return lists;
}

KlProblem make_problem(const std::vector<int64_t>& lengths, int64_t ratio, int64_t k) {
  const Documents documents = make_documents(lengths);
  const int64_t num_tokens = documents.num_tokens();
  KlProblem s{
      .windows = make_windows(documents, ratio), .teacher = {}, .q = {}, .key = {}, .weight = {}, .selected = {}};
  const int64_t num_entries = s.windows.num_entries();
  s.teacher = {.q_THP = random_tensor({num_tokens, 2, 4}, "teacher q"),
               .entries_CP = random_tensor({num_entries, 4}, "teacher entries"),
               .lse_TH = random_tensor({num_tokens, 2}, "lse") + 3,
               .scale = 0.5};
  s.q = random_tensor({num_tokens, 3, 2}, "q");
  s.key = random_tensor({num_entries, 2}, "key");
  s.weight = random_tensor({num_tokens, 3}, "weight");
  if (k >= 0) s.selected = some_lists(s.windows, num_tokens, k);
  return s;
}

// One document of two tokens, ratio 1: query 1 sees two entries, query 0 a single one and so adds nothing.
KlProblem two_entries(const at::Tensor& teacher_share_HC, const at::Tensor& student_logit_C) {
  const int64_t heads = teacher_share_HC.size(0);
  KlProblem s{
      .windows = make_windows(make_documents({2}), 1), .teacher = {}, .q = {}, .key = {}, .weight = {}, .selected = {}};
  s.teacher = {.q_THP = teacher_share_HC.log().expand({2, heads, 2}),
               .entries_CP = at::eye(2, at::kDouble),
               .lse_TH = at::zeros({2, heads}, at::kDouble),
               .scale = 1.0};
  s.q = at::ones({2, 1, 1}, at::kDouble), s.weight = at::ones({2, 1}, at::kDouble);
  s.key = student_logit_C.view({2, 1});
  return s;
}

double literal_loss(const KlProblem& s) {
  double total = 0;
  for (int64_t t = 0; t < s.q.size(0); ++t) {
    std::vector<double> share, score;
    const auto begin = s.windows.visible_begin_T[t].item<int64_t>(), end = s.windows.visible_end_T[t].item<int64_t>();
    for (int64_t c = begin; c < end; ++c) {
      if (s.selected.defined() && !s.selected[t].eq(c).any().item<bool>()) continue;
      double p = 0, index = 0;
      for (int64_t h = 0; h < 2; ++h) {
        const double z = s.teacher.scale * at::dot(s.teacher.q_THP[t][h], s.teacher.entries_CP[c]).item<double>();
        p += std::exp(z - s.teacher.lse_TH[t][h].item<double>());
      }
      for (int64_t h = 0; h < 3; ++h) {
        index += s.weight[t][h].item<double>() * std::max(0.0, at::dot(s.q[t][h], s.key[c]).item<double>());
      }
      share.push_back(p), score.push_back(index);
    }
    double mass = 0, denominator = 0;
    for (size_t i = 0; i < share.size(); ++i) mass += share[i], denominator += std::exp(score[i]);
    for (size_t i = 0; i < share.size(); ++i) {
      const double p = share[i] / mass;
      total += p * (std::log(p) - score[i] + std::log(denominator));
    }
  }
  return total;
}

std::vector<at::Tensor> gradients(KlProblem s) {
  for (at::Tensor* x : {&s.q, &s.key, &s.weight}) *x = x->detach().clone().requires_grad_(true);
  return torch::autograd::grad({s.loss()}, {s.q, s.key, s.weight});
}

// -1: all visible; 1 copies listed rows for later queries; 20 masks a range.
const std::vector<int64_t> kListLengths{-1, 1, 3, 20};

TEST(IndexerKl, EqualsTheLiteralFormula) {
  for (const int64_t k : kListLengths) {
    const KlProblem s = make_problem({1, 3, 4, 5, 17, 33}, 3, k);
    EXPECT_NEAR(s.loss().item<double>(), literal_loss(s), 1e-11) << k;
    EXPECT_GT(s.loss().item<double>(), k == 1 ? -1e-12 : 0.1) << k;
  }
}

TEST(IndexerKl, HalfHalfAgainstOneToThree) {
  const at::Tensor half = at::full({1, 2}, 0.5, at::kDouble);
  const KlProblem apart = two_entries(half, at::tensor({0.0, std::log(3.0)}, at::kDouble));
  EXPECT_NEAR(apart.loss().item<double>(), 0.143841, 1e-6);
  EXPECT_GT(gradients(apart)[0].abs().sum().item<double>(), 0.1);
  const KlProblem equal = two_entries(half, at::tensor({2.0, 2.0}, at::kDouble));
  EXPECT_NEAR(equal.loss().item<double>(), 0.0, 1e-15);
  for (const at::Tensor& grad : gradients(equal)) EXPECT_LT(grad.abs().max().item<double>(), 1e-15);
}

TEST(IndexerKl, HeadsCountByTheirShareOfTheJointSoftmax) {
  // Head 0 spends 0.9 of its attention on entries, head 1 spends 0.1; the rest is window and sink.
  const at::Tensor share_HC = at::tensor({0.9 * 0.8, 0.9 * 0.2, 0.1 * 0.2, 0.1 * 0.8}, at::kDouble).view({2, 2});
  const at::Tensor weighted = at::tensor({0.74, 0.26}, at::kDouble), mean = at::tensor({0.5, 0.5}, at::kDouble);
  EXPECT_NEAR(two_entries(share_HC, weighted.log() + 5).loss().item<double>(), 0.0, 1e-12);
  EXPECT_GT(two_entries(share_HC, mean.log() + 5).loss().item<double>(), 0.1);
}

TEST(IndexerKl, TinySharesDoNotUnderflow) {
  KlProblem s = two_entries(at::full({1, 2}, 0.5, at::kDouble), at::tensor({0.0, std::log(3.0)}, at::kDouble));
  s.teacher.lse_TH.fill_(500.0);
  EXPECT_NEAR(s.as(at::kFloat).loss().item<double>(), 0.143841, 1e-5);
}

TEST(IndexerKl, TheTeacherOfEveryLevelIsThatOfFp64) {
  const cpu::Level before = cpu::level();
  for (const int64_t heads : {3, 8, 17, 64}) {
    for (const int64_t k : {-1, 3, 40}) {  // every visible entry, lists, a masked range
      KlProblem wide = make_problem({3, 1, 90}, 2, k);
      wide.teacher.q_THP = random_tensor({94, heads, 24}, "teacher q");
      wide.teacher.entries_CP = random_tensor({wide.windows.num_entries(), 24}, "teacher entries");
      wide.teacher.lse_TH = random_tensor({94, heads}, "lse") * 5 + 3;
      // Rounded first: a teacher of bf16 inputs is that of the rounded inputs.
      wide = wide.as(at::kBFloat16).as(at::kDouble);
      const auto expected = gradients(wide);
      for (const cpu::Level level :
           {cpu::Level::kPortable, cpu::Level::kAvx2, cpu::Level::kAvx512, cpu::Level::kAvx512Bf16}) {
        if (level > cpu::highest_level()) continue;
        cpu::choose_level(level);
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          KlProblem s = wide.as(at::kFloat);  // the student's own arithmetic is fp32 in every mode
          s.teacher.q_THP = s.teacher.q_THP.to(type), s.teacher.entries_CP = s.teacher.entries_CP.to(type);
          const std::string name = std::string(cpu::level_name(level)) + " heads " + std::to_string(heads) + " k " +
                                   std::to_string(k) + " " + c10::toString(type);
          EXPECT_NEAR(s.loss().item<double>(), wide.loss().item<double>(), 1e-4) << name;
          const auto got = gradients(s);
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_LT(relative_difference(got[i], expected[i]), 1e-4) << name << " " << i;
        }
      }
    }
  }
  cpu::choose_level(before);
}

TEST(IndexerKl, GradientsMatchFiniteDifferences) {
  for (const int64_t k : kListLengths) {
    const KlProblem s = make_problem({4, 1, 13}, 2, k);
    const auto function = [&](const Inputs& x) -> Outputs {
      KlProblem moved = s;
      moved.q = x[0], moved.key = x[1], moved.weight = x[2];
      return {moved.loss()};
    };
    expect_gradients_match(
        function,
        {s.q.clone().requires_grad_(true), s.key.clone().requires_grad_(true), s.weight.clone().requires_grad_(true)},
        1e-7, 1e-6);
  }
}

TEST(IndexerKl, TeacherGetsNoGradient) {
  KlProblem s = make_problem({9}, 2, -1);
  for (at::Tensor* x : {&s.teacher.q_THP, &s.teacher.entries_CP, &s.teacher.lse_TH}) x->requires_grad_(true);
  EXPECT_FALSE(s.loss().requires_grad());
  s.weight.requires_grad_(true);
  const auto grad = torch::autograd::grad({s.loss()}, {s.weight, s.teacher.q_THP}, {}, std::nullopt, false, true);
  EXPECT_TRUE(grad[0].defined());
  EXPECT_FALSE(grad[1].defined());
}

TEST(IndexerKl, EmptySetsGiveZero) {
  for (const KlProblem& s : {make_problem({}, 4, -1), make_problem({3, 2}, 4, -1), make_problem({3, 2}, 4, 0)}) {
    EXPECT_EQ(s.loss().item<double>(), 0.0);
    for (const at::Tensor& grad : gradients(s)) EXPECT_EQ(grad.abs().sum().item<double>(), 0.0);
  }
  for (const int64_t k : {1, 20}) {
    KlProblem s = make_problem({40}, 2, k);
    s.selected.fill_(-1);
    EXPECT_EQ(s.loss().item<double>(), 0.0);
    for (const at::Tensor& grad : gradients(s)) EXPECT_TRUE(at::equal(grad, at::zeros_like(grad)));
  }
}

TEST(IndexerKl, NarrowTypesStayClose) {
  for (const int64_t k : {-1, 3}) {
    const KlProblem s = make_problem({33, 50}, 2, k);
    EXPECT_NEAR(s.as(at::kFloat).loss().item<double>(), s.loss().item<double>(), 1e-4);
    const auto wide = gradients(s), single = gradients(s.as(at::kFloat));
    const KlProblem half = s.as(at::kBFloat16);
    EXPECT_EQ(half.loss().scalar_type(), at::kFloat);
    const auto rounded = gradients(half), exact = gradients(half.as(at::kDouble));
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_LT(relative_difference(single[i], wide[i]), 2e-5) << i;
      EXPECT_EQ(rounded[i].scalar_type(), at::kBFloat16);
      EXPECT_LT(relative_difference(rounded[i], exact[i]), 5e-3) << i;
    }
  }
}

TEST(IndexerKl, TheNumberOfThreadsDoesNotChangeABit) {
  for (const int64_t k : {-1, 5}) {
    const KlProblem s = make_problem({300, 20}, 2, k).as(at::kFloat);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor loss = s.loss();
    const auto one = gradients(s);
    at::set_num_threads(2);
    EXPECT_TRUE(at::equal(s.loss(), loss));
    const auto two = gradients(s);
    at::set_num_threads(before);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << i;
  }
}

TEST(IndexerKl, BadArgumentsAreRefused) {
  const KlProblem s = make_problem({9}, 2, 2);
  KlProblem bad = s;
  bad.key = s.key.slice(0, 0, 3);
  EXPECT_THROW(bad.loss(), c10::Error);
  bad = s, bad.teacher.lse_TH = s.teacher.lse_TH.slice(1, 0, 1);
  EXPECT_THROW(bad.loss(), c10::Error);
  bad = s, bad.selected = at::full({9, 2}, 4, at::kLong);
  EXPECT_THROW(bad.loss(), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
