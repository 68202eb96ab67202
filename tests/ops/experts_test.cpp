#include "asterism/ops/experts.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/packed_weights.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::expect_gradients_match;
using asterism::testing::Inputs;
using asterism::testing::Outputs;
using asterism::testing::outputs_and_gradients;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

constexpr int64_t kExperts = 4, kDim = 3, kWidth = 2, kRank = 2;
constexpr double kLimit = 0.5, kScale = 2.0;  // a limit that really clamps

at::Tensor choice(std::vector<int64_t> values, int64_t k) {
  return at::tensor(values, at::kLong).view({static_cast<int64_t>(values.size()) / k, k});
}

// x, weight, gate_up, down [, A and B of gate_up, A and B of down]
Inputs make_inputs(int64_t t, int64_t k, bool lora, int64_t dim = kDim, int64_t width = kWidth) {
  Inputs in{random_tensor({t, dim}, "x"), random_tensor({t, k}, "weight"),
            random_tensor({kExperts, 2 * width, dim}, "gate_up", 0.7), random_tensor({kExperts, dim, width}, "down")};
  if (lora) {
    in.push_back(random_tensor({kExperts * kRank, dim}, "gate_up_a", 0.5));
    in.push_back(random_tensor({2 * width, kRank * kExperts}, "gate_up_b", 0.5));
    in.push_back(random_tensor({kExperts * kRank, width}, "down_a", 0.5));
    in.push_back(random_tensor({dim, kRank * kExperts}, "down_b", 0.5));
  }
  for (at::Tensor& input : in) input.requires_grad_();
  return in;
}

std::function<Outputs(const Inputs&)> experts(const at::Tensor& expert_TK, double limit = kLimit) {
  const Dispatch dispatch = make_dispatch(expert_TK, kExperts);
  return [=](const Inputs& in) -> Outputs {
    std::optional<ExpertLora> first, second;
    if (in.size() > 4) {
      first = ExpertLora{in[4], in[5], kScale};
      second = ExpertLora{in[6], in[7], kScale};
    }
    return {grouped_experts(in[0], in[1], dispatch, in[2], in[3], limit, first, second)};
  };
}

// W[e] + s B[:, e::E] A[e r : (e + 1) r]
at::Tensor composed(const Inputs& in, size_t weight, size_t a, int64_t e) {
  if (in.size() <= 4) return in[weight][e];
  const at::Tensor b_e = in[a + 1].slice(1, e, std::nullopt, kExperts);
  return in[weight][e] + kScale * at::matmul(b_e, in[a].slice(0, e * kRank, (e + 1) * kRank));
}

// Token by token, slot by slot.
std::function<Outputs(const Inputs&)> dense_loop(const at::Tensor& expert_TK, double limit = kLimit) {
  return [=](const Inputs& in) -> Outputs {
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < expert_TK.size(0); ++t) {
      at::Tensor y = at::zeros({in[0].size(1)}, in[0].options());
      for (int64_t k = 0; k < expert_TK.size(1); ++k) {
        const int64_t e = expert_TK[t][k].item<int64_t>();
        const at::Tensor both = at::matmul(composed(in, 2, 4, e), in[0][t]);
        at::Tensor gate = both.narrow(0, 0, both.size(0) / 2), up = both.narrow(0, both.size(0) / 2, both.size(0) / 2);
        if (limit > 0) {
          gate = gate.clamp_max(limit);
          up = up.clamp(-limit, limit);
        }
        y = y + in[1][t][k] * at::matmul(composed(in, 3, 6, e), at::silu(gate) * up);
      }
      rows.push_back(y);
    }
    return {at::stack(rows)};
  };
}

void expect_dense(const at::Tensor& expert_TK, bool lora, double limit = kLimit) {
  const Inputs in = make_inputs(expert_TK.size(0), expert_TK.size(1), lora);
  const Outputs got = outputs_and_gradients(experts(expert_TK, limit), in);
  const Outputs expected = outputs_and_gradients(dense_loop(expert_TK, limit), in);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(relative_difference(got[i], expected[i]), 1e-12) << "tensor " << i << ", lora " << lora;
  }
}

TEST(Experts, MatchADenseLoopWithAndWithoutLora) {
  for (const bool lora : {false, true}) {
    expect_dense(choice({0, 2, 3, 1, 2, 0, 1, 0, 2, 3}, 2), lora);
    expect_dense(choice({0, 2, 3, 1, 2, 0}, 2), lora, /*limit=*/0.0);
    expect_dense(choice({1, 1, 1, 1, 1}, 1), lora);           // all rows to one expert, three without
    expect_dense(choice({3, 3, 0, 3, 3, 3, 3, 3}, 2), lora);  // duplicates in a row
  }
}

TEST(Experts, GradientsMatchFiniteDifferences) {
  for (const bool lora : {false, true}) {
    for (const double limit : {0.5, 0.0}) {
      const at::Tensor chosen = choice({0, 2, 3, 3, 2, 0}, 2);
      expect_gradients_match(experts(chosen, limit), make_inputs(3, 2, lora));
    }
    expect_gradients_match(experts(choice({2}, 1)), make_inputs(1, 1, lora));
    expect_gradients_match(experts(at::empty({0, 2}, at::kLong)), make_inputs(0, 2, lora));
  }
}

TEST(Experts, AnExpertNamedTwiceIsAppliedWithBothWeights) {
  Inputs in = make_inputs(1, 2, false), once = make_inputs(1, 1, false);
  in[1] = at::tensor({0.3, 0.7}, at::kDouble).view({1, 2});
  once[1] = at::ones({1, 1}, at::kDouble);
  const at::Tensor twice = experts(choice({1, 1}, 2))(in)[0], expected = experts(choice({1}, 1))(once)[0];
  EXPECT_LE(relative_difference(twice, expected), 1e-14);
}

TEST(Experts, ExpertsWithoutRowsGetZeroGradients) {
  const Outputs results = outputs_and_gradients(experts(choice({1, 3, 3, 1}, 2)), make_inputs(2, 2, true));
  const at::Tensor &gate_up = results[3], &down = results[4], &a = results[5], &b = results[6];
  for (const int64_t e : {0, 2}) {
    EXPECT_TRUE(at::equal(gate_up[e], at::zeros_like(gate_up[e])));
    EXPECT_TRUE(at::equal(down[e], at::zeros_like(down[e])));
    EXPECT_EQ(a.slice(0, e * kRank, (e + 1) * kRank).abs().max().item<double>(), 0.0);
    EXPECT_EQ(b.slice(1, e, std::nullopt, kExperts).abs().max().item<double>(), 0.0);
  }
  EXPECT_GT(gate_up[1].abs().max().item<double>(), 0.0);
  EXPECT_GT(b.slice(1, 1, std::nullopt, kExperts).abs().max().item<double>(), 0.0);
}

// E = 4, r = 2, in = out = 1: the update of expert e is [110, 300, 570, 920][e].
TEST(Experts, UpdatesHaveTheLayoutOfPeft) {
  const at::Tensor chosen = choice({0, 1, 2, 3}, 1);
  const at::Tensor x = at::ones({4, 1}, at::kDouble), weight = at::ones({4, 1}, at::kDouble);
  const at::Tensor gate_up = at::tensor({100.0, 1.0}, at::kDouble).view({1, 2, 1}).expand({4, 2, 1});  // silu(100) * 1
  const ExpertLora lora{at::arange(1, 9, at::kDouble).view({8, 1}), at::arange(10, 90, 10, at::kDouble).view({1, 8}),
                        1.0};
  const at::Tensor y = grouped_experts(x, weight, make_dispatch(chosen, 4), gate_up, at::zeros({4, 1, 1}, at::kDouble),
                                       0.0, std::nullopt, lora);
  EXPECT_LE(relative_difference(y.view({-1}), at::tensor({110.0, 300.0, 570.0, 920.0}, at::kDouble) * 100), 1e-14);
}

TEST(Experts, TheClampIsOneSidedForTheGate) {
  const at::Tensor gate_up = at::tensor({20.0, 12.0, -20.0, -12.0}, at::kDouble).view({2, 2, 1});
  const at::Tensor y =
      grouped_experts(at::ones({2, 1}, at::kDouble), at::ones({2, 1}, at::kDouble), make_dispatch(choice({0, 1}, 1), 2),
                      gate_up, at::ones({2, 1, 1}, at::kDouble), 10.0, std::nullopt, std::nullopt);
  EXPECT_NEAR(y[0].item<double>(), 99.995460, 1e-6);
  EXPECT_NEAR(y[1].item<double>(), 200.0 / (1 + std::exp(20.0)), 1e-12);
}

TEST(Experts, FrozenWeightsGetNoGradientAndOneUpdateMayStandAlone) {
  const at::Tensor chosen = choice({0, 2, 3, 1}, 2);
  const Inputs all = make_inputs(2, 2, true);
  const Outputs full = outputs_and_gradients(experts(chosen), all);
  for (const bool first : {true, false}) {
    Inputs in;
    for (const at::Tensor& input : all) in.push_back(input.detach().clone());
    const size_t a = first ? 4 : 6;
    in[a].requires_grad_();
    in[a + 1].requires_grad_();
    const Outputs y = experts(chosen)(in);
    y[0].backward(random_tensor(y[0].sizes(), "cotangent0"));
    EXPECT_FALSE(in[2].grad().defined() || in[3].grad().defined() || in[0].grad().defined());
    EXPECT_TRUE(at::equal(in[a].grad(), full[1 + a]));
    EXPECT_TRUE(at::equal(in[a + 1].grad(), full[2 + a]));
    // The other update is absent: gradients still reach the right inputs.
    const auto alone = [&](const Inputs& x) -> Outputs {
      const ExpertLora lora{x[1], x[2], kScale};
      return {grouped_experts(x[0], in[1], make_dispatch(chosen, kExperts), in[2], in[3], kLimit,
                              first ? std::optional(lora) : std::nullopt, first ? std::nullopt : std::optional(lora))};
    };
    expect_gradients_match(alone, {all[0], all[a], all[a + 1]});
  }
}

TEST(Experts, LowerPrecisionStaysClose) {
  const at::Tensor chosen = choice({0, 2, 3, 1, 2, 0, 1, 0, 2, 3, 1, 3, 0, 1, 1, 1}, 2);
  for (const bool half : {false, true}) {
    Inputs low, high;
    for (const at::Tensor& input : make_inputs(8, 2, true, 32, 16)) {
      const bool stored = low.size() == 0 || low.size() == 2 || low.size() == 3;  // x, gate_up, down
      low.push_back(input.detach().to(half && stored ? at::kBFloat16 : at::kFloat));
      high.push_back(low.back().to(at::kDouble));
    }
    // A clamp decides differently for rounded values: none here.
    const Outputs got = outputs_and_gradients(experts(chosen, 0.0), low);
    const Outputs expected = outputs_and_gradients(experts(chosen, 0.0), high);
    EXPECT_EQ(got[0].scalar_type(), low[0].scalar_type());
    for (size_t i = 0; i < got.size(); ++i) {
      const double allowed = i == 0 ? (half ? 5e-3 : 1e-5) : (half ? 1e-2 : 2e-5);
      EXPECT_LE(relative_l2(got[i], expected[i]), allowed) << low[0].scalar_type() << ", tensor " << i;
      if (i == 0) continue;
      EXPECT_EQ(got[i].scalar_type(), low[i - 1].scalar_type());
    }
  }
}

TEST(Experts, RepeatsAndThreadsGiveTheSameBits) {
  std::vector<int64_t> ids(160);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>((i * i + i / 3) % kExperts);
  const at::Tensor chosen = choice(ids, 2);
  Inputs in = make_inputs(80, 2, true, 16, 8);
  for (at::Tensor& input : in) input = input.detach().to(at::kFloat);
  const auto compute = [&] { return outputs_and_gradients(experts(chosen), in); };
  asterism::testing::expect_threads_do_not_matter(compute);
  const Outputs first = compute(), second = compute();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << "tensor " << i;
}

// ---- packed experts -------------------------------------------------------------------------------------------------

// x, weight [, A and B of gate_up, A and B of down]; D = 64, I = 32.
Inputs packed_inputs(int64_t t, bool lora) {
  Inputs in = make_inputs(t, 2, lora, 64, 32);
  in.erase(in.begin() + 2, in.begin() + 4);
  return in;
}

std::function<Outputs(const Inputs&)> with_experts(const at::Tensor& expert_TK, const Matrix& gate_up,
                                                   const Matrix& down, double limit = kLimit) {
  const Dispatch dispatch = make_dispatch(expert_TK, kExperts);
  return [=](const Inputs& in) -> Outputs {
    std::optional<ExpertLora> first, second;
    if (in.size() > 2) {
      first = ExpertLora{in[2], in[3], kScale};
      second = ExpertLora{in[4], in[5], kScale};
    }
    return {grouped_experts(in[0], in[1], dispatch, gate_up, down, limit, first, second)};
  };
}

struct PackedPair {
  explicit PackedPair(asterism::testing::Packing packing)
      : gate_up(asterism::testing::random_packed(packing, {kExperts, 64, 64}, "gate_up", 2)),
        down(asterism::testing::random_packed(packing, {kExperts, 64, 32}, "down")) {}
  PackedMatrix gate_up, down;
};

TEST(PackedExperts, ValuesAndGradientsAreThoseOfTheDecodedWeights) {
  const at::Tensor chosen = choice({0, 2, 3, 0, 2, 0, 0, 0, 2, 3}, 2);  // expert 1 has no rows, some have one twice
  for (const auto packing : asterism::testing::kPackings) {
    const PackedPair w(packing);
    for (const bool lora : {false, true}) {
      const Inputs in = packed_inputs(5, lora);
      const Outputs found = outputs_and_gradients(with_experts(chosen, w.gate_up, w.down), in);
      const Outputs expected =
          outputs_and_gradients(with_experts(chosen, w.gate_up.decode(at::kDouble), w.down.decode(at::kDouble)), in);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LE(relative_difference(found[i], expected[i]), 1e-13) << "tensor " << i << ", lora " << lora;
      }
    }
  }
}

TEST(PackedExperts, GradientsMatchFiniteDifferences) {
  const PackedPair w(asterism::testing::Packing::kFp4);
  for (const bool lora : {false, true}) {
    expect_gradients_match(with_experts(choice({0, 3}, 2), w.gate_up, w.down, 0.0), packed_inputs(1, lora));
    expect_gradients_match(with_experts(at::empty({0, 2}, at::kLong), w.gate_up, w.down), packed_inputs(0, lora));
  }
  // One packed, one trained.
  const at::Tensor down = random_tensor({kExperts, 64, 32}, "plain", 0.1);
  expect_gradients_match(
      [&](const Inputs& in) -> Outputs {
        return with_experts(choice({1, 2}, 2), w.gate_up, at::cat({down.narrow(1, 0, 63), in[2]}, 1))({in[0], in[1]});
      },
      {packed_inputs(1, false)[0], packed_inputs(1, false)[1], down.narrow(1, 63, 1).clone().requires_grad_()});
}

TEST(PackedExperts, LowerPrecisionStaysClose) {
  const at::Tensor chosen = choice({0, 2, 3, 1, 2, 0, 1, 0, 2, 3, 1, 3, 0, 1, 1, 1}, 2);
  for (const auto packing : asterism::testing::kPackings) {
    const PackedPair w(packing);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      Inputs low, high;
      for (const at::Tensor& input : packed_inputs(8, true)) {
        low.push_back(input.detach().to(low.empty() ? type : at::kFloat));
        high.push_back(low.back().to(at::kDouble));
      }
      const Outputs got = outputs_and_gradients(with_experts(chosen, w.gate_up, w.down, 0.0), low);
      const Outputs expected = outputs_and_gradients(with_experts(chosen, w.gate_up, w.down, 0.0), high);
      for (size_t i = 0; i < got.size(); ++i) {
        const double allowed = type == at::kFloat ? (i == 0 ? 1e-5 : 2e-5) : (i == 0 ? 8e-3 : 1.5e-2);
        EXPECT_LE(relative_l2(got[i], expected[i]), allowed) << type << ", tensor " << i;
      }
    }
  }
}

TEST(PackedExperts, ThreadsGiveTheSameBits) {
  std::vector<int64_t> ids(160);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>((i * i + i / 3) % kExperts);
  const PackedPair w(asterism::testing::Packing::kFp4);
  Inputs in = packed_inputs(80, true);
  for (at::Tensor& input : in) input = input.detach().to(at::kFloat);
  asterism::testing::expect_threads_do_not_matter(
      [&] { return outputs_and_gradients(with_experts(choice(ids, 2), w.gate_up, w.down), in); });
}

TEST(Experts, WrongShapesAreRefused) {
  const Inputs in = make_inputs(2, 2, true);
  const Dispatch dispatch = make_dispatch(choice({0, 1, 2, 3}, 2), kExperts);
  const auto call = [&](const at::Tensor& x, const at::Tensor& weight, const std::optional<ExpertLora>& lora) {
    grouped_experts(x, weight, dispatch, in[2], in[3], kLimit, lora, std::nullopt);
  };
  EXPECT_THROW(call(in[0].narrow(0, 0, 1), in[1], std::nullopt), c10::Error);
  EXPECT_THROW(call(in[0], in[1].narrow(1, 0, 1), std::nullopt), c10::Error);
  EXPECT_THROW(call(in[0], in[1], ExpertLora{in[4], in[5].narrow(1, 0, 7), 1.0}), c10::Error);
  EXPECT_THROW(call(in[0], in[1], ExpertLora{in[4].narrow(0, 0, 7), in[5].narrow(1, 0, 7), 1.0}), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
