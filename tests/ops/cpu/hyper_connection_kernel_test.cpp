#include "asterism/ops/cpu/hyper_connection_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace asterism::ops::cpu {
namespace {

constexpr int64_t kTokens = 37, kStreams = 4, kLogits = 24;

struct Weights {
  std::vector<float> pre, post, comb;
  bool operator==(const Weights&) const = default;
};

// The weights of all tokens, computed in ranges of `step` tokens.
Weights weights_in_ranges(int64_t step) {
  std::vector<float> product(kTokens * kLogits), norm(kTokens), base(kLogits), scale{0.5f, 1.5f, 2.0f};
  for (size_t i = 0; i < product.size(); ++i) product[i] = std::sin(0.37f * static_cast<float>(i));
  for (size_t i = 0; i < norm.size(); ++i) norm[i] = 1.0f + 0.1f * static_cast<float>(i);
  for (size_t i = 0; i < base.size(); ++i) base[i] = std::cos(static_cast<float>(i));
  Weights out{std::vector<float>(kTokens * kStreams), std::vector<float>(kTokens * kStreams),
              std::vector<float>(kTokens * kStreams * kStreams)};
  const StreamWeightsArgs<float> args{.logits = {.product = product.data(),
                                                 .norm = norm.data(),
                                                 .base = base.data(),
                                                 .scale = scale.data(),
                                                 .num_streams = kStreams,
                                                 .num_logits = kLogits,
                                                 .iterations = 20,
                                                 .eps = 1e-6f},
                                      .pre = out.pre.data(),
                                      .post = out.post.data(),
                                      .comb = out.comb.data()};
  for (int64_t begin = 0; begin < kTokens; begin += step) {
    stream_weights(args, begin, std::min(begin + step, kTokens));
  }
  return out;
}

TEST(HyperConnectionKernel, RangesDoNotChangeTheBits) {
  const Weights whole = weights_in_ranges(kTokens);
  for (const int64_t step : {1, 5, 16, 17}) EXPECT_EQ(weights_in_ranges(step), whole) << "ranges of " << step;
}

TEST(HyperConnectionKernel, NormReachesEveryChannelOfAnyWidth) {
  for (const int64_t width : {1, 31, 32, 33, 70}) {
    for (int64_t hot = 0; hot < width; ++hot) {
      std::vector<double> x(width, 0.0);
      x[hot] = 3.0;
      double norm = 0;
      stream_norm(StreamNormArgs<double>{.x = x.data(), .norm = &norm, .width = width, .eps = 0.0}, 0, 1);
      EXPECT_NEAR(norm, std::sqrt(static_cast<double>(width)) / 3.0, 1e-12) << "channel " << hot << " of " << width;
    }
  }
}

TEST(HyperConnectionKernel, ANullResultIsSkipped) {
  const std::vector<double> x{1, 2}, out{3}, post{5, 7}, comb{1, 2, 3, 4}, grad{10, 100};
  std::vector<double> grad_x(2);
  mix_streams_grad(MixGradArgs<double>{.x = x.data(),
                                       .out = out.data(),
                                       .post = post.data(),
                                       .comb = comb.data(),
                                       .grad_mixed = grad.data(),
                                       .grad_x = grad_x.data(),
                                       .grad_out = nullptr,
                                       .grad_post = nullptr,
                                       .grad_comb = nullptr,
                                       .num_streams = 2,
                                       .dim = 1},
                   0, 1);
  EXPECT_EQ(grad_x, (std::vector<double>{210, 430}));
}

}  // namespace
}  // namespace asterism::ops::cpu
