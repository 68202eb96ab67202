#include "asterism/cli/export_report.h"

#include <gtest/gtest.h>

#include "asterism/core/content_hash.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using checkpoint::EditedTensor;
using checkpoint::TensorClass;

std::vector<EditedTensor> edited_tensors() {
  return {{"a", TensorClass::kDense, "FP8", {1000, 900, 0.9, 1.0}},
          {"experts.0", TensorClass::kExperts, "FP4", {4000, 40, 0.04, 1.0}},
          {"b", TensorClass::kDense, "BF16", {10, 10, 2.0, 2.0}},
          {"experts.1", TensorClass::kExperts, "FP4", {4000, 0, 0.0, 1.0}}};
}

TEST(ExportReport, CountsAreSummedByClassAndForm) {
  const auto survival = survival_of(edited_tensors());
  ASSERT_EQ(survival.size(), 3U);
  EXPECT_EQ(survival[0].type, TensorClass::kExperts);
  EXPECT_EQ(survival[0].tensors, 2);
  EXPECT_EQ(survival[0].counts.adapted, 8000);
  EXPECT_EQ(survival[0].counts.changed, 40);
  EXPECT_EQ(survival[0].unchanged, std::vector<std::string>{"experts.1"});
  EXPECT_NE(survival_lines(survival).find("experts (2), FP4: 40 of 8000 adapted weights change (0.5 %), 2 % of the "
                                          "adapter is kept\n"),
            std::string::npos)
      << survival_lines(survival);
}

TEST(ExportReport, AClassInWhichTheAdapterVanishesIsNamedWithItsTensorsAndCounts) {
  const auto warnings = survival_warnings(survival_of(edited_tensors()));
  ASSERT_EQ(warnings.size(), 1U) << "the other classes keep their update";
  for (const char* part : {"the adapter vanishes in rounding: experts (2), FP4: 40 of 8000 adapted weights change",
                           "nothing is left in 1 tensors: experts.1", "--experts bf16"}) {
    EXPECT_NE(warnings[0].find(part), std::string::npos) << warnings[0];
  }
}

TEST(ExportReport, EachSignOfVanishingIsEnough) {
  const auto count = [](const EditedTensor& tensor) { return survival_warnings(survival_of({tensor})).size(); };
  EXPECT_EQ(count({"a", TensorClass::kDense, "BF16", {1000, 1000, 0.9, 1.0}}), 0U);
  EXPECT_EQ(count({"a", TensorClass::kDense, "BF16", {1000, 99, 0.9, 1.0}}), 1U) << "few weights changed";
  EXPECT_EQ(count({"a", TensorClass::kDense, "BF16", {1000, 999, 0.4, 1.0}}), 1U) << "little of the update kept";
  EXPECT_EQ(count({"a", TensorClass::kDense, "BF16", {5, 0, 0.0, 1.0}}), 1U) << "nothing left of a tensor";
  EXPECT_EQ(count({"a", TensorClass::kDense, "BF16", {0, 0, 0.0, 0.0}}), 0U) << "nothing to lose";
}

TEST(ExportReport, AProofSaysWhatHoldsAndWhatDoesNot) {
  checkpoint::Proof proof;
  proof.effect = 0.25;
  proof.error = 2e-3;
  proof.checks = {{"effect", "the adapter does something", 0.25, 1e-7, true},
                  {"file", "the file is right", 2e-3, 1e-5}};
  const auto json = proof_json(proof);
  EXPECT_EQ(json["holds"], false);
  EXPECT_EQ(json["checks"][0]["holds"], true);
  EXPECT_EQ(json["checks"][0]["above"], 1e-7);
  EXPECT_EQ(json["checks"][1]["holds"], false);
  EXPECT_EQ(json["checks"][1]["at_most"], 1e-5);
  EXPECT_NE(proof_lines(proof).find("proved: the adapter does something (0.25, above 1e-07)\n"
                                    "NOT TRUE: the file is right (0.002, at most 1e-05)\n"),
            std::string::npos)
      << proof_lines(proof);
}

TEST(ExportReport, FilesHaveSizeAndChecksum) {
  const testing::TemporaryFolder folder;
  folder.write("config.json", "{}");
  const auto files = files_json(folder.path());
  EXPECT_EQ(files.dump(),
            nlohmann::ordered_json(
                {{"config.json", {{"bytes", 2}, {"xxh128", content_hash_of_file(folder / "config.json")}}}})
                .dump());
}

}  // namespace
}  // namespace asterism::cli
