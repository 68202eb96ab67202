// Every operator against every property that an operator may have. An entry of the table (operator.h) answers for each
// property: the general check, a check of its own, or the reason why it does not apply, which the test prints.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/ops/all/checks.h"
#include "tests/support/kernel_levels.h"

namespace asterism::testing {
namespace {

constexpr const char* kPropertyNames[] = {
    "Fp64",   "FiniteDifferences", "NoRows", "OneRow",        "Tails",      "Threads",  "Levels",
    "Poison", "Strides",           "Ties",   "UnusedIndices", "Duplicates", "Extremes", "NotANumber"};
static_assert(std::size(kPropertyNames) == static_cast<size_t>(kLastProperty) + 1);

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> found;
    for (const auto& part :
         {attention_operators(), choice_operators(), codec_operators(), product_operators(), row_operators()}) {
      found.insert(found.end(), part.begin(), part.end());
    }
    return found;
  }();
  return all;
}

// False where only the operator's own answer can do.
bool check_generally(const Operator& op, Property property) {
  switch (property) {
    case Property::kFp64:
      expect_close_to_fp64(op, op.problem(Shape::kWide));
      return true;
    case Property::kGradients:
      expect_finite_differences(op);
      return true;
    case Property::kNoRows:
      expect_nothing_from_no_rows(op);
      return true;
    case Property::kOneRow:
      expect_close_to_fp64(op, op.make(Shape::kTail, 1));
      return true;
    case Property::kTails:
      expect_close_to_fp64(op, op.problem(Shape::kTail));
      return true;
    case Property::kThreads:
      expect_threads_agree(op);
      return true;
    case Property::kLevels:
      expect_levels_agree(op);
      return true;
    case Property::kPoison:
      expect_poison_is_not_read(op);
      return true;
    case Property::kStrided:
      expect_strides_do_not_matter(op);
      return true;
    default:
      return false;
  }
}

using Pair = std::tuple<size_t, int>;

// One thread, unless a check is about more: tensors are small, and threads that wait for each other are not.
class AllOps : public ::testing::TestWithParam<Pair> {
 protected:
  void SetUp() override { at::set_num_threads(1); }

 private:
  KernelSettings restored_;
};

TEST_P(AllOps, Hold) {
  const Operator& op = all_operators()[std::get<0>(GetParam())];
  const auto property = static_cast<Property>(std::get<1>(GetParam()));
  const auto answer = op.answers.find(property);
  if (answer == op.answers.end()) {
    EXPECT_TRUE(check_generally(op, property)) << op.name << " does not say whether this applies to it";
  } else if (answer->second.check) {
    answer->second.check();
  } else {
    ASSERT_FALSE(answer->second.reason.empty());
    GTEST_SKIP() << "does not apply: " << answer->second.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, AllOps,
                         ::testing::Combine(::testing::Range<size_t>(0, all_operators().size()),
                                            ::testing::Range(static_cast<int>(kFirstProperty),
                                                             static_cast<int>(kLastProperty) + 1)),
                         [](const ::testing::TestParamInfo<Pair>& info) {
                           return all_operators()[std::get<0>(info.param)].name + "_" +
                                  kPropertyNames[std::get<1>(info.param)];
                         });

}  // namespace
}  // namespace asterism::testing
