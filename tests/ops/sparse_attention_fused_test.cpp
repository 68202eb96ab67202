#include "asterism/ops/sparse_attention_fused.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "asterism/ops/cpu/level.h"
#include "asterism/ops/sparse_attention_reference.h"
#include "tests/support/attention_problem.h"
#include "tests/support/gradients.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::attention_gradients;
using asterism::testing::AttentionCase;
using asterism::testing::AttentionKind;
using asterism::testing::AttentionProblem;
using asterism::testing::make_attention;
using asterism::testing::poison_scratch;
using asterism::testing::random_tensor;
using asterism::testing::relative_l2;
using cpu::Level;

constexpr AttentionKind kKinds[] = {AttentionKind::kWindowOnly, AttentionKind::kAllVisible, AttentionKind::kSelected};

void at_every_level(const std::function<void()>& check) {
  asterism::testing::at_every_level(Level::kAvx2, check);
}

class FusedAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::level_of_name("avx2") || cpu::highest_level() < Level::kAvx2) GTEST_SKIP() << "no kernels for this CPU";
    if (ReferenceAttention::is_wanted()) GTEST_SKIP() << "the reference is to be used";
  }

 private:
  asterism::testing::KernelSettings restored_;
};

// o, lse and the gradients of q, kv, sink, entries.
std::vector<at::Tensor> everything(const AttentionProblem& s) {
  poison_scratch();
  const SparseAttentionResult result = s.run();
  std::vector<at::Tensor> all{result.o_THP, result.lse_TH};
  poison_scratch();
  for (const at::Tensor& grad : attention_gradients(s)) all.push_back(grad);
  return all;
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double size = (x.norm() * y.norm()).item<double>();
  return size > 0 ? (x * y).sum().item<double>() / size : 1.0;
}

// The tolerances of operators.md section 14. `sharp`: errors of the scores, which are relative, grow with them.
void expect_close(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected, at::ScalarType type,
                  double sharp = 1.0) {
  ASSERT_EQ(got.size(), expected.size());
  const bool bf16 = type == at::kBFloat16;
  EXPECT_LE(relative_l2(got[0], expected[0]), bf16 ? 5e-3 : 1e-5 * sharp) << "o";
  if (got[1].numel() > 0) {
    EXPECT_LE((got[1] - expected[1]).abs().max().item<double>(), 1e-5 * sharp) << "lse";
  }
  for (size_t i = 2; i < got.size(); ++i) {
    // The sink's gradient is one number per head, a sum that cancels: few of them do not average their errors out.
    const double few = i == 4 ? std::sqrt(std::max(8.0 / static_cast<double>(got[i].numel()), 1.0)) : 1.0;
    EXPECT_LE(relative_l2(got[i], expected[i]), (bf16 ? 1e-2 : 2e-5 * sharp) * few) << "gradient " << i - 2;
    EXPECT_GE(cosine(got[i], expected[i]), 0.9999) << "gradient " << i - 2;
  }
}

std::string name_of(const AttentionCase& c, int64_t heads, int64_t width, at::ScalarType type) {
  return "kind " + std::to_string(static_cast<int>(c.kind)) + " window " + std::to_string(c.window) + " k " +
         std::to_string(c.k) + " heads " + std::to_string(heads) + " width " + std::to_string(width) + " " +
         c10::toString(type);
}

void expect_equals_fp64(const AttentionCase& c, int64_t heads, int64_t width) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(name_of(c, heads, width, type));
    const AttentionProblem s = make_attention(c, heads, width).as(type);
    const std::vector<at::Tensor> expected = everything(s.as(at::kDouble));
    at_every_level([&] { expect_close(everything(s), expected, type); });
  }
}

TEST_F(FusedAttention, EqualsTheFp64ReferenceForAllHeadsAndWidths) {
  for (const auto& [heads, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 16},
                                                                             {2, 20},
                                                                             {3, 32},
                                                                             {5, 100},
                                                                             {7, 48},
                                                                             {8, 128},
                                                                             {16, 64},
                                                                             {24, 33},
                                                                             {33, 96},
                                                                             {64, 160},
                                                                             {16, 512}}) {
    for (const AttentionKind kind : kKinds) expect_equals_fp64({{1, 3, 1, 45}, 9, 4, kind, 5}, heads, width);
  }
}

TEST_F(FusedAttention, EqualsTheFp64ReferenceForAllLengthsAndWindows) {
  for (const AttentionKind kind : kKinds) {
    for (const int64_t window : {1, 2, 31, 500}) {
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{1}, {64}, {1, 1, 65}, {3, 200}}) {
        expect_equals_fp64({lengths, window, 3, kind, 4}, 8, 32);
      }
    }
  }
}

TEST_F(FusedAttention, RangesUnionsAndListsOfEntriesEqualTheFp64Reference) {
  // With 8 heads lists are used beyond about twice their length, below it the union of what a block selected; several
  // tiles of keys each.
  for (const auto& [tokens, k] :
       std::vector<std::pair<int64_t, int64_t>>{{260, 100}, {260, 20}, {700, 320}, {900, 6}}) {
    expect_equals_fp64({{tokens}, 20, 2, AttentionKind::kSelected, k}, 8, 32);
  }
  expect_equals_fp64({{300}, 20, 2, AttentionKind::kSelected, 130}, 64, 32);
  expect_equals_fp64({{400}, 20, 2, AttentionKind::kSelected, 5}, 64, 32);
  expect_equals_fp64({{400}, 20, 2, AttentionKind::kAllVisible}, 64, 32);
  expect_equals_fp64({{300}, 250, 2, AttentionKind::kWindowOnly}, 64, 32);
}

TEST_F(FusedAttention, TheOrderOfAListAndRepeatedIndicesDoNotMatter) {
  at_every_level([] {
    for (const int64_t k : {6, 60}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const AttentionProblem s = make_attention({{20, 240}, 10, 2, AttentionKind::kSelected, k}, 8, 32).as(type);
        AttentionProblem shuffled = s;
        shuffled.selected = at::cat({s.selected.flip(1), s.selected, s.selected.slice(1, 1, 4)}, 1);
        const auto expected = everything(s), got = everything(shuffled);
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << k << " tensor " << i;
      }
    }
  });
}

TEST_F(FusedAttention, NobodySelectingAnythingEqualsTheWindowAlone) {
  at_every_level([] {
    AttentionProblem none = make_attention({{5, 60}, 7, 4, AttentionKind::kSelected, 3}, 4, 32).as(at::kFloat);
    none.selected.fill_(-1);
    AttentionProblem window = none;
    window.entries = window.selected = at::Tensor();
    const auto got = everything(none), expected = everything(window);
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
    EXPECT_TRUE(at::equal(got[5], at::zeros_like(none.entries)));
  });
}

TEST_F(FusedAttention, TheNumberOfThreadsDoesNotChangeABit) {
  at_every_level([] {
    for (const AttentionKind kind : kKinds) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const AttentionProblem s = make_attention({{300, 1, 40, 500}, 32, 4, kind, 9}, 4, 32).as(type);
        at::set_num_threads(1);
        const auto expected = everything(s);
        for (const int threads : {2, 3, 4}) {
          at::set_num_threads(threads);
          const auto got = everything(s);
          for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << threads << " " << i;
        }
      }
    }
  });
}

TEST_F(FusedAttention, ExtremeSinksAndSharpScoresKeepTheirPrecision) {
  at_every_level([] {
    for (const AttentionKind kind : kKinds) {
      for (const double sink : {30.0, -30.0, double{-INFINITY}}) {
        AttentionProblem s = make_attention({{5, 70}, 12, 4, kind, 4}, 8, 32);
        s.sink = at::full({8}, sink, at::kDouble);
        s.q = s.q * 10;
        const AttentionProblem narrow = s.as(at::kFloat);
        const auto got = everything(narrow), expected = everything(narrow.as(at::kDouble));
        expect_close(got, expected, at::kFloat, /*sharp=*/10.0);
      }
    }
  });
}

TEST_F(FusedAttention, EqualScoresAreSharedEqually) {
  at_every_level([] {
    AttentionProblem s = make_attention({{40}, 8, 4, AttentionKind::kAllVisible}, 3, 32).as(at::kFloat);
    s.q.zero_(), s.sink.zero_();
    const SparseAttentionResult result = s.run();
    for (const int64_t t : {0, 7, 39}) {
      const int64_t seen = std::min<int64_t>(t + 1, 8) + (t + 1) / 4;
      EXPECT_NEAR(result.lse_TH[t][1].item<double>(), std::log(seen + 1.0), 1e-6);
      const at::Tensor sum =
          s.kv.slice(0, std::max<int64_t>(t - 7, 0), t + 1).sum(0) + s.entries.slice(0, 0, (t + 1) / 4).sum(0);
      EXPECT_LT(relative_l2(result.o_THP[t][2], sum / (seen + 1.0)), 1e-6);
    }
  });
}

TEST_F(FusedAttention, NotANumberReachesThoseWhoSeeItAndNobodyElse) {
  at_every_level([] {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      AttentionProblem s = make_attention({{30, 50}, 6, 4, AttentionKind::kAllVisible}, 16, 32).as(type);
      s.kv[40][3] = NAN;  // seen by the queries 40 .. 45
      const SparseAttentionResult result = s.run();
      for (int64_t t = 30; t < 80; ++t) {
        const bool sees = t >= 40 && t < 46;
        EXPECT_EQ(result.lse_TH[t].isnan().all().item<bool>(), sees) << t;
        EXPECT_EQ(result.o_THP[t].isnan().all().item<bool>(), sees) << t;
      }
      EXPECT_FALSE(result.o_THP.slice(0, 0, 30).isnan().any().item<bool>());
      AttentionProblem bad_query = make_attention({{30}, 6, 4, AttentionKind::kAllVisible}, 16, 32).as(type);
      bad_query.q[11][3][0] = NAN;
      const at::Tensor o = bad_query.run().o_THP;
      EXPECT_TRUE(o[11][3].isnan().all().item<bool>());
      EXPECT_EQ(o.isnan().sum().item<int64_t>(), 32);
      EXPECT_TRUE(attention_gradients(bad_query)[0][11][3].isnan().all().item<bool>());
    }
  });
}

TEST_F(FusedAttention, StridedInputsGiveTheSameBits) {
  at_every_level([] {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const AttentionProblem s = make_attention({{30, 50}, 6, 4, AttentionKind::kSelected, 3}, 4, 20).as(type);
      AttentionProblem strided = s;
      strided.q = s.q.permute({2, 0, 1}).contiguous().permute({1, 2, 0});
      strided.kv = at::cat({s.kv, s.kv}, 1).slice(1, 0, 20);
      strided.entries = s.entries.t().contiguous().t();
      strided.selected = at::cat({s.selected, s.selected}, 1).slice(1, 0, 3);
      strided.sink = at::stack({s.sink, s.sink}, 1).select(1, 0);
      ASSERT_FALSE(strided.q.is_contiguous() || strided.kv.is_contiguous() || strided.entries.is_contiguous());
      const SparseAttentionResult got = strided.run(), expected = s.run();
      EXPECT_TRUE(at::equal(got.o_THP, expected.o_THP));
      EXPECT_TRUE(at::equal(got.lse_TH, expected.lse_TH));
      strided.q.requires_grad_(true), strided.kv.requires_grad_(true);
      const auto backward = [](const AttentionProblem& problem, const at::Tensor& grad_o) {
        return torch::autograd::grad({problem.run().o_THP}, {problem.q, problem.kv}, {grad_o});
      };
      AttentionProblem dense = s;
      dense.q = s.q.clone().requires_grad_(true), dense.kv = s.kv.clone().requires_grad_(true);
      const at::Tensor grad_o = random_tensor({20, 4, 80}, "grad_o").to(type).permute({2, 1, 0});
      const auto got_grad = backward(strided, grad_o), expected_grad = backward(dense, grad_o.contiguous());
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(got_grad[i], expected_grad[i])) << i;
    }
  });
}

TEST_F(FusedAttention, RotatesLikeTheReference) {
  at_every_level([] {
    for (const int64_t width : {32, 20}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        AttentionProblem s = make_attention({{30, 50}, 6, 4, AttentionKind::kAllVisible}, 8, width).as(type);
        AttentionProblem wide = s.as(at::kDouble);
        s.rotation = make_rope_table({.width = 16}, s.documents.position_T, at::kFloat);
        wide.rotation = make_rope_table({.width = 16}, s.documents.position_T, at::kDouble);
        expect_close(everything(s), everything(wide), type);
      }
    }
  });
}

TEST_F(FusedAttention, GradientsMatchFiniteDifferencesOfTheReference) {
  at_every_level([] {
    for (const AttentionKind kind : kKinds) {
      const AttentionProblem s = make_attention({{9, 30}, 7, 3, kind, 4}, 3, 16).as(at::kFloat);
      const auto grad = attention_gradients(s);
      const AttentionProblem wide = s.as(at::kDouble);
      const at::Tensor cotangent = random_tensor(s.q.sizes(), "cotangent");
      for (size_t i = 0; i < grad.size(); ++i) {
        const auto loss_at = [&](double step) {
          AttentionProblem moved = wide;
          at::Tensor* inputs[]{&moved.q, &moved.kv, &moved.sink, &moved.entries};
          *inputs[i] = *inputs[i] + random_tensor(inputs[i]->sizes(), "direction") * step;
          return (moved.run().o_THP * cotangent).sum().item<double>();
        };
        const double numeric = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
        const double analytic =
            (grad[i].to(at::kDouble) * random_tensor(grad[i].sizes(), "direction")).sum().item<double>();
        EXPECT_NEAR(analytic, numeric, 1e-4 * std::max<double>(1.0, std::abs(numeric))) << i;
      }
    }
  });
}

TEST_F(FusedAttention, EachGradientCanBeAskedForAlone) {
  at_every_level([] {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const AttentionProblem s = make_attention({{6, 90}, 4, 2, AttentionKind::kSelected, 5}, 8, 32).as(type);
      const auto all = attention_gradients(s);
      for (size_t i = 0; i < 4; ++i) {
        AttentionProblem one = s;
        at::Tensor* inputs[]{&one.q, &one.kv, &one.sink, &one.entries};
        *inputs[i] = inputs[i]->clone().requires_grad_(true);
        const at::Tensor o = one.run().o_THP;
        const at::Tensor cotangent = random_tensor(o.sizes(), "cotangent").to(type);
        EXPECT_TRUE(at::equal(torch::autograd::grad({o}, {*inputs[i]}, {cotangent})[0], all[i])) << i;
      }
    }
  });
}

TEST_F(FusedAttention, LevelsDifferByRoundingOnly) {
  const AttentionProblem s = make_attention({{30, 200}, 20, 4, AttentionKind::kSelected, 9}, 8, 64).as(at::kFloat);
  std::vector<std::vector<at::Tensor>> results;
  at_every_level([&] { results.push_back(everything(s)); });
  for (const auto& result : results) {
    for (size_t i = 0; i < result.size(); ++i) EXPECT_LT(relative_l2(result[i], results[0][i]), 1e-5) << i;
  }
}

TEST_F(FusedAttention, IsWhatFp32AndBf16UseAndFp64DoesNot) {
  cpu::choose_level(cpu::highest_level());
  AttentionInputs in;
  in.q_THP = at::zeros({0, 1, 16});
  EXPECT_TRUE(can_fuse_attention(in));
  in.q_THP = in.q_THP.to(at::kBFloat16);
  EXPECT_TRUE(can_fuse_attention(in));
  in.q_THP = in.q_THP.to(at::kDouble);
  EXPECT_FALSE(can_fuse_attention(in));
  in.q_THP = in.q_THP.to(at::kFloat);
  cpu::choose_level(Level::kPortable);
  EXPECT_FALSE(can_fuse_attention(in));
}

}  // namespace
}  // namespace asterism::ops
