#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/gradients.h"

/// The table of all operators (all_ops_test.cpp): what an entry says about its operator.
namespace asterism::testing {

/// kSmall for finite differences; kTail: sizes that are no multiples of vectors, tiles or blocks; kWide: those of
/// models, and enough rows for several threads.
enum class Shape { kSmall, kTail, kWide };

/// One call of an operator.
struct Problem {
  Inputs inputs;                                  // fp64 (codes: bytes); those that record gradients are compared
  std::function<Outputs(const Inputs&)> run;      // differentiable results; may be absent
  std::function<Outputs(const Inputs&)> observe;  // all other results, integers too; may be absent
};

enum class Property {
  kFp64,        // fp32 and bf16 are close to fp64 (operators.md section 14), at every level
  kGradients,   // finite differences in fp64
  kNoRows,      // results without rows, gradients that are defined and zero
  kOneRow,      // kFp64 with one row
  kTails,       // kFp64 with odd sizes
  kThreads,     // 1 to 4 threads: the same bits
  kLevels,      // levels agree: the same bits, or up to rounding
  kPoison,      // scratch and fresh memory full of NaN change nothing
  kStrided,     // inputs of any strides
  kTies,        // equal candidates
  kUnused,      // index lists of -1 only
  kDuplicates,  // an index named twice
  kExtremes,    // large numbers
  kNan,         // not a number where something is promised
};
constexpr Property kFirstProperty = Property::kFp64, kLastProperty = Property::kNan;

/// Why a property does not apply, or the operator's own check of it.
struct Answer {
  Answer(const char* text) : reason(text) {}
  Answer(std::string text) : reason(std::move(text)) {}
  Answer(std::function<void()> own) : check(std::move(own)) {}

  std::string reason;
  std::function<void()> check;
};

struct Operator {
  std::string name;
  std::function<Problem(Shape shape, int64_t rows)> make;
  std::vector<at::ScalarType> narrow;       // types of the inputs in bf16 mode, one each at least; empty: no such mode
  bool same_bits_at_levels = false;         // promised
  double bf16_slack = 1.0;                  // factor of the tolerances of bf16 mode
  std::map<Property, Answer> answers = {};  // where the general check (checks.h) does not do
  std::map<Shape, int64_t> rows = {{Shape::kSmall, 4}, {Shape::kTail, 37}, {Shape::kWide, 130}};

  Problem problem(Shape shape) const { return make(shape, rows.at(shape)); }
};

template <typename T>
T at_shape(Shape shape, T small, T tail, T wide) {
  return shape == Shape::kSmall ? small : shape == Shape::kTail ? tail : wide;
}

// The answers that many operators share.
inline const char* const kNoChoice = "nothing is chosen";
inline const char* const kNoIndices = "there are no index lists";
inline const char* const kNoPromise = "nothing is promised for NaN";
inline const char* const kNotDifferentiable = "not differentiable";
inline const char* const kLinear = "linear: no number is larger than its inputs";

std::vector<Operator> attention_operators();
std::vector<Operator> choice_operators();
std::vector<Operator> codec_operators();
std::vector<Operator> product_operators();
std::vector<Operator> row_operators();

}  // namespace asterism::testing
