#include "tests/support/precision.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/gradients.h"

namespace asterism::testing {

std::vector<at::Tensor> outputs_and_gradients(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs) {
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

double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kDouble), right = b.to(at::kDouble);
  const double gap = (left - right).norm().item<double>(), size = right.norm().item<double>();
  return size > 0 ? gap / size : gap;
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
