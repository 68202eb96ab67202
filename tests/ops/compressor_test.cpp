#include "asterism/ops/compressor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "asterism/ops/linear.h"
#include "asterism/ops/matmul.h"
#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::Inputs;
using asterism::testing::Outputs;
using asterism::testing::outputs_and_gradients;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

constexpr double kEps = 1e-6;
constexpr int64_t kChannels = 6, kRotating = 4;

struct Case {
  std::vector<int64_t> lengths;
  int64_t ratio;
  bool overlap;
};

double angle(int64_t position, int64_t pair) {
  return static_cast<double>(position) * (pair == 0 ? 1.0 : 0.1);
}

RopeTable table_of(const Windows& windows) {
  at::Tensor angles = at::empty({windows.num_entries(), kRotating / 2}, at::kDouble);
  for (int64_t c = 0; c < angles.size(0); ++c) {
    for (int64_t i = 0; i < kRotating / 2; ++i) angles[c][i] = angle(windows.position_C[c].item<int64_t>(), i);
  }
  return {at::cos(angles), at::sin(angles)};
}

// x, wkv, wgate, ape, norm
Inputs make_inputs(const Case& c, int64_t dim) {
  const int64_t width = (c.overlap ? 2 : 1) * kChannels;
  const int64_t num_tokens = make_documents(c.lengths).num_tokens();
  return {random_tensor({num_tokens, dim}, "x").requires_grad_(), random_tensor({width, dim}, "wkv").requires_grad_(),
          random_tensor({width, dim}, "wgate").requires_grad_(),
          random_tensor({c.ratio, width}, "ape").requires_grad_(),
          (1 + random_tensor({kChannels}, "norm", 0.2)).requires_grad_()};
}

std::function<Outputs(const Inputs&)> compressor(const Case& c) {
  const Documents documents = make_documents(c.lengths);
  const Windows windows = make_windows(documents, c.ratio);
  return [=](const Inputs& in) -> Outputs {
    const at::Tensor x = in[0].to(sum_type(in[0].scalar_type()));  // the projections are fp32 in every mode
    const at::Tensor entry = compress(ops::linear(x, in[1]), ops::linear(x, in[2]), in[3], in[4], documents, windows,
                                      c.overlap, table_of(windows), kEps);
    return {entry.to(in[0].scalar_type())};
  };
}

using Matrix = std::vector<std::vector<double>>;

Matrix numbers(const at::Tensor& x) {
  Matrix out(x.size(0), std::vector<double>(x.size(1)));
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t j = 0; j < x.size(1); ++j) out[i][j] = x[i][j].item<double>();
  }
  return out;
}

// Norm, then rotation of the last channels.
void finish_entry(std::vector<double>& entry, const at::Tensor& norm, int64_t position) {
  double square = 0;
  for (const double value : entry) square += value * value;
  const double rms = std::sqrt(square / static_cast<double>(kChannels) + kEps);
  for (int64_t i = 0; i < kChannels; ++i) entry[i] *= norm[i].item<double>() / rms;
  for (int64_t i = 0; i < kRotating / 2; ++i) {
    double& a = entry[kChannels - kRotating + 2 * i];
    double& b = entry[kChannels - kRotating + 2 * i + 1];
    const double cos = std::cos(angle(position, i)), sin = std::sin(angle(position, i)), before = a;
    a = before * cos - b * sin;
    b = before * sin + b * cos;
  }
}

// Document by document, window by window, channel by channel.
Matrix literal(const Case& c, const Inputs& in) {
  const Matrix u = numbers(at::matmul(in[0], in[1].t())), g = numbers(at::matmul(in[0], in[2].t()));
  const Matrix ape = numbers(in[3]);
  Matrix entries;
  int64_t start = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t w = 0; (w + 1) * c.ratio <= length; ++w) {
      std::vector<double> entry(kChannels);
      for (int64_t channel = 0; channel < kChannels; ++channel) {
        double weight_sum = 0, value_sum = 0;
        const int64_t first = c.overlap && w > 0 ? (w - 1) * c.ratio : w * c.ratio;
        for (int64_t t = first; t < (w + 1) * c.ratio; ++t) {
          const int64_t column = c.overlap && t >= w * c.ratio ? kChannels + channel : channel;
          const double weight = std::exp(g[start + t][column] + ape[t % c.ratio][column]);
          weight_sum += weight;
          value_sum += weight * u[start + t][column];
        }
        entry[channel] = value_sum / weight_sum;
      }
      finish_entry(entry, in[4], w * c.ratio);
      entries.push_back(entry);
    }
    start += length;
  }
  return entries;
}

void expect_literal(const Case& c) {
  const Inputs in = make_inputs(c, 3);
  const at::Tensor got = compressor(c)(in)[0];
  const Matrix expected = literal(c, in);
  ASSERT_EQ(got.size(0), static_cast<int64_t>(expected.size()));
  ASSERT_EQ(got.size(1), kChannels);
  for (size_t w = 0; w < expected.size(); ++w) {
    for (int64_t i = 0; i < kChannels; ++i) {
      EXPECT_NEAR(got[w][i].item<double>(), expected[w][i], 1e-11) << "entry " << w << ", channel " << i;
    }
  }
}

TEST(Compressor, OverlapMatchesTheLiteralLoop) {
  for (const int64_t length : {1, 3, 4, 5, 6, 7, 8, 9}) expect_literal({{length}, 4, true});
  expect_literal({{9, 3, 4, 13, 1, 8}, 4, true});
}

TEST(Compressor, PlainMatchesTheLiteralLoop) {
  expect_literal({{15, 7, 6, 20}, 7, false});
  expect_literal({{16, 33, 5, 50}, 16, false});
}

TEST(Compressor, GradientsMatchFiniteDifferences) {
  const std::vector<Case> cases{{{9, 3, 4}, 4, true}, {{4}, 4, true},    {{8, 13}, 4, true}, {{8, 15}, 7, false},
                                {{16}, 16, false},    {{3, 2}, 4, true}, {{}, 4, true}};
  for (const Case& c : cases) asterism::testing::expect_gradients_match(compressor(c), make_inputs(c, 2));
}

TEST(Compressor, NoEntryGivesZeroGradients) {
  const Case c{{3, 1}, 4, true};
  const Outputs results = outputs_and_gradients(compressor(c), make_inputs(c, 2));
  EXPECT_EQ(results[0].sizes(), at::IntArrayRef({0, kChannels}));
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_GT(results[i].numel(), 0);
    EXPECT_TRUE(at::equal(results[i], at::zeros_like(results[i]))) << "input " << i - 1;
  }
}

TEST(Compressor, ADroppedTailChangesNothing) {
  const Case c{{6, 11}, 4, true};
  Inputs in = make_inputs(c, 3);
  const at::Tensor before = compressor(c)(in)[0];
  at::Tensor changed = in[0].detach().clone();
  changed[5].fill_(INFINITY);  // tail of the first document
  changed[16].fill_(NAN);      // last token of the second
  in[0] = changed;
  EXPECT_TRUE(at::equal(compressor(c)(in)[0], before));
}

TEST(Compressor, TheFirstWindowOfADocumentSeesNoOtherDocument) {
  const Case c{{8, 8}, 4, true};
  Inputs in = make_inputs(c, 3);
  const at::Tensor before = compressor(c)(in)[0];
  at::Tensor changed = in[0].detach().clone();
  changed.narrow(0, 4, 4).fill_(NAN);  // last window of the first document
  in[0] = changed;
  const at::Tensor after = compressor(c)(in)[0];
  EXPECT_TRUE(at::equal(after.narrow(0, 2, 2), before.narrow(0, 2, 2)));
  EXPECT_TRUE(at::equal(after[0], before[0]));
  EXPECT_TRUE(at::isnan(after[1]).all().item<bool>());
}

TEST(Compressor, LowerPrecisionStaysClose) {
  const Case c{{40, 23}, 4, true};
  for (const bool half : {false, true}) {
    Inputs low, high;
    for (const at::Tensor& input : make_inputs(c, 16)) {
      low.push_back(input.detach().to(half && low.empty() ? at::kBFloat16 : at::kFloat));
      high.push_back(low.back().to(at::kDouble));
    }
    const Outputs got = outputs_and_gradients(compressor(c), low),
                  expected = outputs_and_gradients(compressor(c), high);
    EXPECT_EQ(got[0].scalar_type(), low[0].scalar_type());
    for (size_t i = 0; i < got.size(); ++i) {
      const double allowed = i == 0 ? (half ? 5e-3 : 1e-5) : (half ? 1e-2 : 2e-5);
      EXPECT_LE(relative_l2(got[i], expected[i]), allowed) << low[0].scalar_type() << ", tensor " << i;
      if (i == 0) continue;
      EXPECT_EQ(got[i].scalar_type(), low[i - 1].scalar_type());
    }
  }
}

TEST(Compressor, RepeatsAndThreadsGiveTheSameBits) {
  const Case c{{130, 70}, 4, true};
  Inputs in = make_inputs(c, 8);
  for (at::Tensor& input : in) input = input.detach().to(at::kFloat);
  const auto compute = [&] { return outputs_and_gradients(compressor(c), in); };
  asterism::testing::expect_threads_do_not_matter(compute);
  const Outputs first = compute(), second = compute();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << "tensor " << i;
}

TEST(Compressor, WrongShapesAreRefused) {
  const Case overlapping{{8}, 4, true}, plain{{8}, 4, false};
  EXPECT_THROW(compressor(plain)(make_inputs(overlapping, 3)), c10::Error);
  EXPECT_THROW(compressor({{9}, 4, true})(make_inputs(overlapping, 3)), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
