#include "asterism/checkpoint/value_edit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace asterism::checkpoint {
namespace {

const model::TensorSpec kSpec{"model.layers.0.self_attn.q_a_proj.weight", {2, 64}, model::TensorRole::kMatrix};

/// Adds one number to every value, or puts it in place of every entry.
class AddNumber : public ValueEdit {
 public:
  explicit AddNumber(float number) : number_(number) {}
  nlohmann::ordered_json mark() const override { return number_; }
  bool edits(const std::string&) const override { return true; }
  void apply(const EditedRows& rows, float* values, float* change) const override {
    for (int64_t i = 0; i < rows.count(); ++i) values[i] += number_;
    std::fill_n(change, rows.count(), number_);
  }
  void replace_entries(const EditedRows& rows, int64_t* entries) const override {
    std::fill_n(entries, rows.count(), static_cast<int64_t>(number_));
  }

 private:
  float number_;
};

/// What is left of adding `number` to ones that are stored as `from` and become `to`.
EditCounts add_to_ones(float number, const Form& from, const Form& to, std::vector<float>* result = nullptr) {
  const EditedRows rows{kSpec, 0, 2, 64};
  const std::vector<float> ones(rows.count(), 1.0F);
  std::vector<std::byte> in(data_bytes(from, 2, 64)), in_scale(64), out(data_bytes(to, 2, 64)), out_scale(64);
  Recoder::encode(ones.data(), from, in.data(), in_scale.data(), 2, 64);
  EditCounts counts;
  EditingRecoder recoder;
  recoder.recode(AddNumber(number), rows, from, {in.data(), in_scale.data()}, to, out.data(), out_scale.data(), counts);
  if (result != nullptr) {
    result->resize(rows.count());
    Recoder::decode(to, {out.data(), out_scale.data()}, 2, 64, result->data());
  }
  return counts;
}

const Form kStoredBf16 = Form::plain(at::kBFloat16), kStoredFp32 = Form::plain(at::kFloat);

TEST(ValueEdit, CountsWhatRoundingLeaves) {
  // bf16 has steps of 2^-7 above 1; half a step is a tie, which goes back to 1.
  const EditCounts lost = add_to_ones(0x1p-8F, kStoredBf16, kStoredBf16);
  EXPECT_EQ(lost.adapted, 128);
  EXPECT_EQ(lost.changed, 0);
  EXPECT_EQ(lost.kept(), 0.0);
  const EditCounts whole = add_to_ones(0x1p-7F, kStoredBf16, kStoredBf16);
  EXPECT_EQ(whole.changed, 128);
  EXPECT_EQ(whole.kept(), 1.0);
  const EditCounts enlarged = add_to_ones(0x1.8p-8F, kStoredBf16, kStoredBf16);
  EXPECT_EQ(enlarged.changed, 128);
  EXPECT_NEAR(enlarged.kept(), 4.0 / 3.0, 1e-6);
  EXPECT_EQ(add_to_ones(0x1p-8F, kStoredBf16, kStoredFp32).kept(), 1.0);
}

TEST(ValueEdit, CodesAreComparedByTheirValues) {
  // FP8 holds 1 and 1.125; FP4 holds 1 and 1.5.
  EXPECT_EQ(add_to_ones(0.05F, Form::fp8(), Form::fp8()).changed, 0);
  EXPECT_EQ(add_to_ones(0.07F, Form::fp8(), Form::fp8()).changed, 128);
  EXPECT_EQ(add_to_ones(0.24F, Form::fp4(), Form::fp4()).changed, 0);
  EXPECT_EQ(add_to_ones(0.26F, Form::fp4(), Form::fp4()).changed, 128);
  // Another scale writes other codes for the same values: nothing has changed.
  EXPECT_EQ(add_to_ones(0.0F, Form::fp8(), Form::fp8(at::kFloat)).changed, 0);
  EXPECT_EQ(add_to_ones(0.0F, Form::fp8(), Form::fp8(at::kFloat)).adapted, 0);
}

TEST(ValueEdit, WritesTheEditedValues) {
  std::vector<float> result;
  add_to_ones(0.5F, Form::fp4(), Form::fp8(), &result);
  EXPECT_EQ(std::ranges::count(result, 1.5F), 128);
}

TEST(ValueEdit, TooSmallForFp32StillCountsAsAdapted) {
  const EditCounts counts = add_to_ones(1e-9F, kStoredFp32, kStoredFp32);
  EXPECT_EQ(counts.adapted, 128);
  EXPECT_EQ(counts.changed, 0);
}

TEST(ValueEdit, EntriesOfTablesAreReplacedInTheTypeOfTheTable) {
  const model::TensorSpec table{"model.layers.0.mlp.gate.tid2eid", {2, 2}, model::TensorRole::kTable};
  const EditedRows rows{table, 0, 2, 2};
  const std::vector<int32_t> old = {7, 1, 7, 2};
  std::vector<int32_t> narrow(4);
  std::vector<int64_t> wide(4);
  EditingRecoder recoder;
  EditCounts counts;
  const auto* in = reinterpret_cast<const std::byte*>(old.data());
  recoder.recode_entries(AddNumber(7), rows, Form::plain(at::kInt), in, Form::plain(at::kInt),
                         reinterpret_cast<std::byte*>(narrow.data()), counts);
  EXPECT_EQ(narrow, (std::vector<int32_t>{7, 7, 7, 7}));
  EXPECT_EQ(counts.changed, 2);
  EXPECT_EQ(counts.adapted, 2);
  recoder.recode_entries(AddNumber(7), rows, Form::plain(at::kInt), in, Form::plain(at::kLong),
                         reinterpret_cast<std::byte*>(wide.data()), counts);
  EXPECT_EQ(wide, (std::vector<int64_t>{7, 7, 7, 7}));
}

}  // namespace
}  // namespace asterism::checkpoint
