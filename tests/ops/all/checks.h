#pragma once

#include "tests/ops/all/operator.h"

/// The general checks of the table's properties.
namespace asterism::testing {

/// What an operator gives for its inputs in these types, with fixed cotangents of bf16 values.
struct Results {
  Outputs outputs, gradients, observed;

  Outputs all() const;
};
Results evaluate(const Problem& problem, const std::vector<at::ScalarType>& types);
/// All inputs of one type.
Results evaluate(const Problem& problem, at::ScalarType type);

/// Results in fp32 and in bf16 mode against fp64 from the same rounded inputs, at every level; integers are equal.
/// `slack` multiplies the tolerances of fp32.
void expect_close_to_fp64(const Operator& op, const Problem& problem, double slack = 1.0);

void expect_finite_differences(const Operator& op);
void expect_nothing_from_no_rows(const Operator& op);
void expect_threads_agree(const Operator& op);
void expect_levels_agree(const Operator& op);
void expect_poison_is_not_read(const Operator& op);
void expect_strides_do_not_matter(const Operator& op);

/// NaN in the first row of input 0 reaches the first row of every result and no other row, at every level.
void expect_nan_stays_in_its_row(const Operator& op);
/// Input number `input` times `factor`: finite, and close to fp64 with fp32 tolerances times `slack`. Without
/// gradients where those of saturated functions vanish.
void expect_extremes_are_fine(const Operator& op, size_t input, double factor, double slack = 1.0,
                              bool compare_gradients = true);

}  // namespace asterism::testing
