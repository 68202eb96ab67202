#include "asterism/checkpoint/recoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"

namespace asterism::checkpoint {
namespace {

constexpr int64_t kRows = 130, kColumns = 160;

/// A matrix in a form.
struct Coded {
  Form form;
  std::vector<std::byte> data, scale;

  explicit Coded(const Form& of)
      : form(of), data(data_bytes(of, kRows, kColumns)), scale(scale_bytes(of, kRows, kColumns)) {}
  MatrixBytes bytes() const { return {data.data(), scale.empty() ? nullptr : scale.data()}; }
  std::vector<float> values() const {
    std::vector<float> out(kRows * kColumns);
    Recoder::decode(form, bytes(), kRows, kColumns, out.data());
    return out;
  }
};

Coded coded_source() {
  Coded matrix(Form::plain(at::kFloat));
  auto* values = reinterpret_cast<float*>(matrix.data.data());
  const RandomStream stream(3, "recoding");
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    values[i] = static_cast<float>(std::ldexp(stream.normal(i), static_cast<int>(i / kColumns % 9) - 6));
  }
  return matrix;
}

Coded recoded(const Coded& from, const Form& to, RecodingLoss* loss = nullptr) {
  Coded result(to);
  Recoder recoder;
  const RecodingLoss lost =
      recoder.recode(from.form, from.bytes(), to, result.data.data(), result.scale.data(), kRows, kColumns);
  if (loss != nullptr) *loss = lost;
  return result;
}

std::vector<Form> all_forms() {
  return {Form::plain(at::kFloat), Form::plain(at::kBFloat16),
          Form::plain(at::kHalf),  Form::fp8(),
          Form::fp8(at::kFloat),   Form::fp4()};
}

TEST(Recoding, SizesFollowTheForms) {
  EXPECT_EQ(data_bytes(Form::fp4(), 130, 160), 130U * 80);
  EXPECT_EQ(scale_bytes(Form::fp4(), 130, 160), 130U * 5);
  EXPECT_EQ(scale_bytes(Form::fp8(), 130, 160), 4U);
  EXPECT_EQ(scale_bytes(Form::fp8(at::kFloat), 128, 128), 4U);
  EXPECT_EQ(scale_bytes(Form::plain(at::kFloat), 128, 128), 0U);
}

TEST(Recoding, TheLossIsThatOfTheValues) {
  const Coded from = coded_source();
  const std::vector<float> before = from.values();
  for (const Form& form : all_forms()) {
    RecodingLoss loss;
    const std::vector<float> after = recoded(from, form, &loss).values();
    int64_t changed = 0, vanished = 0;
    double relative = 0.0;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      ++changed;
      if (after[i] == 0.0F) {
        ++vanished;
      } else {
        relative = std::max(relative, std::fabs((double{after[i]} - double{before[i]}) / double{before[i]}));
      }
    }
    EXPECT_EQ(loss.values, kRows * kColumns) << form.text();
    EXPECT_EQ(loss.changed, changed) << form.text();
    EXPECT_EQ(loss.vanished, vanished) << form.text();
    EXPECT_NEAR(loss.largest_relative, relative, 1e-6 * relative) << form.text();
    EXPECT_EQ(changed == 0, form == Form::plain(at::kFloat)) << form.text();
  }
}

TEST(Recoding, WhatAFormHoldsSurvivesEveryWiderOne) {
  const Coded from = coded_source();
  const std::pair<Form, std::vector<Form>> chains[] = {
      {Form::fp4(), {Form::fp8(), Form::plain(at::kBFloat16), Form::plain(at::kFloat)}},
      {Form::fp8(), {Form::plain(at::kBFloat16), Form::plain(at::kFloat)}},
      {Form::fp8(at::kFloat), {Form::plain(at::kFloat)}},
      {Form::plain(at::kBFloat16), {Form::plain(at::kFloat)}},
  };
  for (const auto& [narrow, wider] : chains) {
    const Coded start = recoded(from, narrow);
    for (const Form& wide : wider) {
      RecodingLoss there, back;
      const Coded middle = recoded(start, wide, &there), end = recoded(middle, narrow, &back);
      EXPECT_EQ(there.changed, 0) << narrow.text() << " -> " << wide.text();
      EXPECT_EQ(back.changed, 0) << wide.text() << " -> " << narrow.text();
      EXPECT_EQ(end.values(), start.values()) << narrow.text() << " -> " << wide.text();
    }
  }
}

// At the ends of the range bf16 is not exact any more, and that is measured.
TEST(Recoding, ScalesThatLeaveTheRangeOfBf16AreNoticed) {
  Coded from(Form::fp8());
  std::fill(from.data.begin(), from.data.end(), std::byte{0x01});  // 2^-9
  for (const auto& [scale, exact] : {std::pair{0, false}, {2, false}, {3, true}, {127, true}}) {
    std::fill(from.scale.begin(), from.scale.end(), static_cast<std::byte>(scale));
    RecodingLoss loss;
    const Coded to = recoded(from, Form::plain(at::kBFloat16), &loss);
    EXPECT_EQ(loss.changed == 0, exact) << scale;
    EXPECT_EQ(to.values() == from.values(), exact) << scale;
  }
}

TEST(Recoding, TheSameFormIsCopiedByteForByte) {
  for (const Form& form : all_forms()) {
    const Coded start = recoded(coded_source(), form), copy = recoded(start, form);
    EXPECT_EQ(copy.data, start.data);
    EXPECT_EQ(copy.scale, start.scale);
  }
}

TEST(Recoding, NanIsKeptWhereItCanBeAndRefusedElsewhere) {
  Coded from = coded_source();
  reinterpret_cast<float*>(from.data.data())[77] = std::numeric_limits<float>::quiet_NaN();
  RecodingLoss loss;
  EXPECT_TRUE(std::isnan(recoded(from, Form::plain(at::kBFloat16), &loss).values()[77]));
  EXPECT_THROW(recoded(from, Form::fp8()), RunError);
  EXPECT_THROW(recoded(from, Form::fp4()), RunError);
}

TEST(Recoding, LossesAddUp) {
  RecodingLoss sum{10, 2, 1, 0.25};
  sum += {5, 1, 0, 0.5};
  EXPECT_EQ(sum.values, 15);
  EXPECT_EQ(sum.changed, 3);
  EXPECT_EQ(sum.vanished, 1);
  EXPECT_EQ(sum.largest_relative, 0.5);
}

}  // namespace
}  // namespace asterism::checkpoint
