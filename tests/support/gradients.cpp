#include "tests/support/gradients.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "asterism/core/rng.h"

namespace asterism::testing {

namespace {

at::Tensor contract(const Outputs& outputs, const Outputs& cotangents) {
  at::Tensor total = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < outputs.size(); ++i) total = total + (outputs[i] * cotangents[i]).sum();
  return total;
}

}  // namespace

void expect_gradients_match(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                            double tolerance, double step) {
  Inputs leaves;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool record = inputs[i].defined() && inputs[i].requires_grad();
    leaves.push_back(record ? inputs[i].detach().clone().requires_grad_(true) : inputs[i]);
    if (record) wanted.push_back(i);
  }
  ASSERT_FALSE(wanted.empty()) << "no input requires a gradient";
  const Outputs outputs = function(leaves);
  Outputs cotangents;
  for (size_t i = 0; i < outputs.size(); ++i) {
    cotangents.push_back(random_tensor(outputs[i].sizes(), "cotangent" + std::to_string(i)));
  }
  torch::autograd::variable_list sources;
  for (const size_t i : wanted) sources.push_back(leaves[i]);
  const auto analytic = torch::autograd::grad({contract(outputs, cotangents)}, sources, {}, std::nullopt,
                                              /*create_graph=*/false, /*allow_unused=*/true);
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < wanted.size(); ++k) {
    ASSERT_TRUE(analytic[k].defined()) << "input " << wanted[k] << " got no gradient";
    ASSERT_EQ(analytic[k].sizes(), leaves[wanted[k]].sizes()) << "input " << wanted[k];
    const at::Tensor flat = leaves[wanted[k]].detach().view(-1);
    at::Tensor numeric = at::empty(flat.sizes(), at::kDouble);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      double* value = flat.data_ptr<double>() + i;
      const double middle = *value;
      *value = middle + step;
      const double above = contract(function(leaves), cotangents).item<double>();
      *value = middle - step;
      const double below = contract(function(leaves), cotangents).item<double>();
      *value = middle;
      numeric.data_ptr<double>()[i] = (above - below) / (2 * step);
    }
    if (flat.numel() == 0) continue;
    const at::Tensor gap = (analytic[k].reshape(-1) - numeric).abs();
    const int64_t worst = gap.argmax().item<int64_t>();
    const double allowed = tolerance * std::max(1.0, numeric.abs().max().item<double>());
    EXPECT_LE(gap[worst].item<double>(), allowed)
        << "input " << wanted[k] << ", element " << worst << ": autograd "
        << analytic[k].reshape(-1)[worst].item<double>() << ", finite difference " << numeric[worst].item<double>();
  }
}

at::Tensor random_tensor(at::IntArrayRef shape, const std::string& name, double scale) {
  at::Tensor out = at::empty(shape, at::kDouble);
  fill_normal(RandomStream(1, name), out.data_ptr<double>(), out.numel(), scale);
  return out;
}

at::Tensor random_leaf(at::IntArrayRef shape, const std::string& name) {
  return random_tensor(shape, name).requires_grad_(true);
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  if (b.numel() == 0) return a.numel() == 0 ? 0.0 : INFINITY;
  const at::Tensor left = a.to(at::kDouble), right = b.to(at::kDouble);
  const double top = right.abs().max().item<double>();
  const double gap = (left - right).abs().max().item<double>();
  return top > 0 ? gap / top : gap;
}

}  // namespace asterism::testing
