#include "tests/support/precision.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace asterism::testing {

namespace {

bool is_real(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point();
}

struct Evaluation {
  std::vector<at::Tensor> outputs, gradients;
};

Evaluation evaluate(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                    const std::vector<at::ScalarType>& types, at::ScalarType cotangent_type) {
  Inputs leaves;
  torch::autograd::variable_list sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_real(inputs[i])) {
      leaves.push_back(inputs[i]);
      continue;
    }
    leaves.push_back(inputs[i].detach().to(types[i]).clone().requires_grad_(inputs[i].requires_grad()));
    if (inputs[i].requires_grad()) sources.push_back(leaves.back());
  }
  Evaluation result{function(leaves), {}};
  torch::autograd::variable_list cotangents;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const at::Tensor cotangent = random_tensor(result.outputs[i].sizes(), "precision" + std::to_string(i));
    cotangents.push_back(cotangent.to(cotangent_type).to(result.outputs[i].scalar_type()));
  }
  if (!sources.empty()) result.gradients = torch::autograd::grad(result.outputs, sources, cotangents);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(result.gradients[i].scalar_type(), sources[i].scalar_type()) << "gradient " << i;
  }
  return result;
}

}  // namespace

double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.detach().to(at::kDouble);
  const double gap = (a.detach().to(at::kDouble) - exact).norm().item<double>();
  const double size = exact.norm().item<double>();
  return size > 0 ? gap / size : gap;
}

void expect_precision(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                      const std::vector<at::ScalarType>& types, double output_tolerance, double gradient_tolerance) {
  Inputs rounded;
  for (size_t i = 0; i < inputs.size(); ++i) {
    rounded.push_back(is_real(inputs[i]) ? inputs[i].detach().to(types[i]).to(at::kDouble) : inputs[i]);
    if (is_real(inputs[i])) rounded.back().requires_grad_(inputs[i].requires_grad());
  }
  const Evaluation actual = evaluate(function, rounded, types, types[0]);
  const Evaluation exact =
      evaluate(function, rounded, std::vector<at::ScalarType>(types.size(), at::kDouble), types[0]);
  for (size_t i = 0; i < exact.outputs.size(); ++i) {
    EXPECT_LE(relative_l2(actual.outputs[i], exact.outputs[i]), output_tolerance) << types[0] << " output " << i;
  }
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    EXPECT_LE(relative_l2(actual.gradients[i], exact.gradients[i]), gradient_tolerance)
        << types[0] << " gradient " << i;
  }
}

void expect_all_precisions(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                           size_t first_weight) {
  std::vector<at::ScalarType> types(inputs.size(), at::kFloat);
  expect_precision(function, inputs, types, 1e-5, 2e-5);
  for (size_t i = 0; i < first_weight; ++i) types[i] = at::kBFloat16;
  expect_precision(function, inputs, types, 5e-3, 1e-2);
  for (at::ScalarType& type : types) type = at::kBFloat16;
  expect_precision(function, inputs, types, 5e-3, 1e-2);
}

std::vector<at::Tensor> outputs_and_gradients(const std::function<Outputs(const Inputs&)>& function,
                                              const Inputs& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_(true));
  const std::vector<at::Tensor> outputs = function(leaves);
  std::vector<at::Tensor> cotangents, results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    cotangents.push_back(random_tensor(outputs[i].sizes(), "cotangent" + std::to_string(i)).to(outputs[i].dtype()));
    results.push_back(outputs[i].detach());
  }
  for (const at::Tensor& grad : torch::autograd::grad(outputs, leaves, cotangents)) results.push_back(grad);
  return results;
}

void expect_threads_do_not_matter(const std::function<std::vector<at::Tensor>()>& compute) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = compute();
  at::set_num_threads(2);
  const std::vector<at::Tensor> two = compute();
  at::set_num_threads(before);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << "tensor " << i;
}

}  // namespace asterism::testing
