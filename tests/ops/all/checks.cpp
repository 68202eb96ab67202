#include "tests/ops/all/checks.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "tests/support/kernel_levels.h"
#include "tests/support/precision.h"

namespace asterism::testing {

namespace {

using ops::cpu::Level;
using Types = std::vector<at::ScalarType>;

bool is_real(const at::Tensor& x) {
  return x.defined() && x.is_floating_point();
}

Types all_of(const Problem& problem, at::ScalarType type) {
  return Types(problem.inputs.size(), type);
}

// The modes in which an operator runs, fp64 excepted.
std::vector<Types> modes(const Operator& op, const Problem& problem) {
  std::vector<Types> found{all_of(problem, at::kFloat)};
  if (!op.narrow.empty()) found.push_back(op.narrow);
  return found;
}

bool is_narrow(const Types& types) {
  return std::find(types.begin(), types.end(), at::kBFloat16) != types.end();
}

Problem rounded(const Problem& problem, const Types& types) {
  Problem result = problem;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const at::Tensor& x = problem.inputs[i];
    if (is_real(x)) result.inputs[i] = x.detach().to(types[i]).to(at::kDouble).requires_grad_(x.requires_grad());
  }
  return result;
}

void expect_tensor_close(const at::Tensor& got, const at::Tensor& exact, double tolerance, const std::string& name) {
  ASSERT_EQ(got.sizes(), exact.sizes()) << name;
  if (!got.is_floating_point()) {
    EXPECT_TRUE(at::equal(got, exact)) << name;
    return;
  }
  // A cosine of 0.9999 follows from 1e-2.
  EXPECT_LE(relative_l2(got, exact), tolerance) << name;
}

// Relative errors of values and gradients: operators.md section 14.
struct Tolerance {
  double value, gradient;
};
Tolerance of_fp32(double slack = 1.0) {
  return {1e-5 * slack, 2e-5 * slack};
}
Tolerance of_bf16(double slack) {
  return {5e-3 * slack, 1e-2 * slack};
}

void expect_results_close(const Results& got, const Results& exact, const Tolerance& tolerance) {
  ASSERT_EQ(got.all().size(), exact.all().size());
  for (size_t i = 0; i < exact.outputs.size(); ++i) {
    expect_tensor_close(got.outputs[i], exact.outputs[i], tolerance.value, "output " + std::to_string(i));
  }
  for (size_t i = 0; i < exact.observed.size(); ++i) {
    expect_tensor_close(got.observed[i], exact.observed[i], tolerance.value, "result " + std::to_string(i));
  }
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    // Gradients of a few numbers are sums that cancel, and do not average their errors out.
    const double few = std::sqrt(std::max(8.0 / static_cast<double>(exact.gradients[i].numel() + 1e-9), 1.0));
    expect_tensor_close(got.gradients[i], exact.gradients[i], tolerance.gradient * few,
                        "gradient " + std::to_string(i));
  }
}

void expect_same_bits(const Outputs& a, const Outputs& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

// While one lives, at::empty gives NaN (integers: their largest).
class PoisonedMemory {
 public:
  PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// The same numbers, with the first and the last dimension exchanged in memory, or with a gap between neighbours.
at::Tensor strided(const at::Tensor& x) {
  if (x.dim() == 1) return at::stack({x, at::full_like(x, 7)}, 1).select(1, 0);
  return x.transpose(0, -1).contiguous().transpose(0, -1);
}

}  // namespace

Outputs Results::all() const {
  Outputs everything = outputs;
  everything.insert(everything.end(), gradients.begin(), gradients.end());
  everything.insert(everything.end(), observed.begin(), observed.end());
  return everything;
}

Results evaluate(const Problem& problem, const Types& types) {
  Inputs leaves = problem.inputs;
  torch::autograd::variable_list sources, cotangents;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!is_real(leaves[i])) continue;
    const bool record = leaves[i].requires_grad();
    leaves[i] = leaves[i].detach().to(types[i]);
    // Without a change of type this is the problem's own tensor, whose strides a copy would not always keep.
    if (record) sources.push_back(leaves[i] = leaves[i].detach().requires_grad_(true));
  }
  Results results;
  if (problem.run) results.outputs = problem.run(leaves);
  if (problem.observe) {
    const at::NoGradGuard no_grad;
    results.observed = problem.observe(leaves);
  }
  if (sources.empty()) return results;
  for (size_t i = 0; i < results.outputs.size(); ++i) {
    const at::Tensor cotangent = random_tensor(results.outputs[i].sizes(), "cotangent" + std::to_string(i));
    cotangents.push_back(cotangent.to(at::kBFloat16).to(results.outputs[i].scalar_type()));
  }
  results.gradients = torch::autograd::grad(results.outputs, sources, cotangents);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(results.gradients[i].scalar_type(), sources[i].scalar_type()) << "gradient " << i;
    EXPECT_EQ(results.gradients[i].sizes(), sources[i].sizes()) << "gradient " << i;
  }
  return results;
}

Results evaluate(const Problem& problem, at::ScalarType type) {
  return evaluate(problem, all_of(problem, type));
}

void expect_close_to_fp64(const Operator& op, const Problem& problem, double slack) {
  for (const Types& types : modes(op, problem)) {
    SCOPED_TRACE(is_narrow(types) ? "bf16" : "fp32");
    const Problem same = rounded(problem, types);
    const Results exact = evaluate(same, at::kDouble);
    const Tolerance tolerance = is_narrow(types) ? of_bf16(op.bf16_slack) : of_fp32(slack);
    at_every_level(Level::kPortable, [&] { expect_results_close(evaluate(same, types), exact, tolerance); });
  }
}

void expect_finite_differences(const Operator& op) {
  const Problem problem = op.problem(Shape::kSmall);
  expect_gradients_match(problem.run, problem.inputs);
}

void expect_nothing_from_no_rows(const Operator& op) {
  const Problem problem = op.make(Shape::kTail, 0);
  for (const Types& types : modes(op, problem)) {
    for (const at::Tensor& x : evaluate(problem, types).all()) {
      ASSERT_TRUE(x.defined());
      EXPECT_EQ(at::count_nonzero(x).item<int64_t>(), 0);
    }
  }
}

void expect_threads_agree(const Operator& op) {
  const KernelSettings restored;
  const Problem problem = op.problem(Shape::kWide);
  for (const Types& types : modes(op, problem)) {
    at::set_num_threads(1);
    const Outputs one = evaluate(problem, types).all();
    for (const int threads : {2, 3, 4}) {
      SCOPED_TRACE(std::to_string(threads) + " threads");
      at::set_num_threads(threads);
      expect_same_bits(evaluate(problem, types).all(), one);
    }
  }
}

void expect_levels_agree(const Operator& op) {
  const Problem problem = op.problem(Shape::kTail);
  const Results highest = evaluate(problem, at::kFloat);
  at_every_level(Level::kPortable, [&] {
    const Results results = evaluate(problem, at::kFloat);
    if (op.same_bits_at_levels) {
      expect_same_bits(results.all(), highest.all());
    } else {
      expect_results_close(results, highest, of_fp32());
    }
  });
}

void expect_poison_is_not_read(const Operator& op) {
  const Problem problem = op.problem(Shape::kTail);
  for (const Types& types : modes(op, problem)) {
    at_every_level(Level::kPortable, [&] {
      const Outputs clean = evaluate(problem, types).all();
      const PoisonedMemory poisoned;
      poison_scratch();
      expect_same_bits(evaluate(problem, types).all(), clean);
    });
  }
}

void expect_strides_do_not_matter(const Operator& op) {
  Problem problem = op.problem(Shape::kTail), other = problem;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    at::Tensor& x = problem.inputs[i];
    if (!x.defined() || x.numel() == 0) continue;
    const bool record = x.requires_grad();
    x = is_real(x) ? x.detach().to(at::kFloat) : x;
    other.inputs[i] = strided(x);
    if (record) x.requires_grad_(true), other.inputs[i].requires_grad_(true);
  }
  expect_results_close(evaluate(other, at::kFloat), evaluate(problem, at::kFloat), of_fp32());
}

void expect_nan_stays_in_its_row(const Operator& op) {
  Problem problem = op.problem(Shape::kTail), broken = problem;
  broken.inputs[0] = problem.inputs[0].detach().clone();
  broken.inputs[0].select(0, 0).fill_(NAN);
  for (const Types& types : modes(op, problem)) {
    at_every_level(Level::kPortable, [&] {
      const Outputs clean = evaluate(problem, types).outputs, got = evaluate(broken, types).outputs;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(got[i].select(0, 0).isnan().any().item<bool>()) << "output " << i;
        EXPECT_TRUE(at::equal(got[i].slice(0, 1), clean[i].slice(0, 1))) << "output " << i;
      }
    });
  }
}

void expect_extremes_are_fine(const Operator& op, size_t input, double factor, double slack, bool compare_gradients) {
  Problem problem = op.problem(Shape::kTail);
  const at::Tensor& x = problem.inputs[input];
  problem.inputs[input] = (x.detach() * factor).requires_grad_(x.requires_grad());
  for (const at::Tensor& y : evaluate(problem, at::kFloat).all()) {
    EXPECT_TRUE(y.isfinite().all().item<bool>());
  }
  if (!compare_gradients) {
    for (at::Tensor& each : problem.inputs) each = each.detach();
  }
  expect_close_to_fp64(op, problem, slack);
}

}  // namespace asterism::testing
