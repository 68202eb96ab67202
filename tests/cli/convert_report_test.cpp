#include "asterism/cli/convert_report.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"

namespace asterism::cli {
namespace {

using checkpoint::Form;

TEST(ConvertReport, WordsOfOptionsMeanForms) {
  const auto none = storage_of_words("", "", "e8m0");
  EXPECT_FALSE(none.experts || none.dense);
  const auto both = storage_of_words("fp4", "fp8", "f32");
  EXPECT_TRUE(*both.experts == Form::fp4());
  EXPECT_TRUE(*both.dense == Form::fp8(at::kFloat));
  EXPECT_TRUE(*storage_of_words("", "fp8", "").dense == Form::fp8());
}

TEST(ConvertReport, SizesAndWorkersAreWholeNumbers) {
  EXPECT_EQ(shard_bytes_of("500MB"), 500'000'000U);
  EXPECT_THROW(shard_bytes_of("0"), InputError);
  EXPECT_THROW(shard_bytes_of("5 GB"), InputError);
  EXPECT_EQ(workers_of(3), 3);
  EXPECT_GE(workers_of(0), 2);
}

TEST(ConvertReport, LossesAreALineForEachClass) {
  checkpoint::ConvertReport report;
  report.classes = {{checkpoint::TensorClass::kExperts, "FP4", "FP8", 2, {.values = 100}},
                    {checkpoint::TensorClass::kDense,
                     "BF16",
                     "FP8",
                     1,
                     {.values = 200, .changed = 50, .vanished = 3, .largest_relative = 0.0625}}};
  EXPECT_EQ(class_lines(report),
            "experts (2), FP4 -> FP8: exact\n"
            "dense matrices (1), BF16 -> FP8: largest relative error 0.0625, 25 % of 200 values changed, 3 became 0\n");
  const auto json = classes_json(report);
  EXPECT_EQ(json[0]["exact"], true);
  EXPECT_EQ(json[1]["changed"], 50);
  EXPECT_EQ(json[1]["became_zero"], 3);
}

}  // namespace
}  // namespace asterism::cli
