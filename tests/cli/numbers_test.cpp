#include "asterism/cli/numbers.h"

#include <gtest/gtest.h>

#include <limits>

namespace asterism::cli {
namespace {

TEST(Numbers, WholeNumbersAreDecimalDigits) {
  EXPECT_EQ(parse_whole<int64_t>("0"), 0);
  EXPECT_EQ(parse_whole<int64_t>("-12"), -12);
  EXPECT_EQ(parse_whole<int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_whole<uint64_t>("18446744073709551615"), UINT64_MAX);
  for (const char* bad :
       {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "010", "-01", "0x10", "1_000", "9223372036854775808"}) {
    EXPECT_EQ(parse_whole<int64_t>(bad), std::nullopt) << bad;
  }
  for (const char* bad : {"-1", "18446744073709551616"}) EXPECT_EQ(parse_whole<uint64_t>(bad), std::nullopt) << bad;
}

TEST(Numbers, BytesMayHaveAUnit) {
  EXPECT_EQ(parse_bytes("12"), 12U);
  EXPECT_EQ(parse_bytes("50KB"), 50'000U);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000U);
  EXPECT_EQ(parse_bytes("18TB"), 18'000'000'000'000U);
  for (const char* bad : {"", "GB", "5 GB", "5gb", "1.5GB", "-1MB", "99999999999TB", "5GiB"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Numbers, NumbersAreFiniteDecimals) {
  EXPECT_EQ(parse_number("1e-4"), 1e-4);
  EXPECT_EQ(parse_number("1.0E-20"), 1e-20);
  EXPECT_EQ(parse_number("+.5"), 0.5);
  EXPECT_EQ(parse_number("-3"), -3.0);
  for (const char* bad :
       {"", "+", "+-1", "++1", "1e", "e5", "1,5", "0x10", "inf", "nan", "-inf", "1e999", "1e-999", "1 "}) {
    EXPECT_EQ(parse_number(bad), std::nullopt) << bad;
  }
}

TEST(Numbers, TextReadsAsTheSameNumber) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(64.0), "64");
  EXPECT_EQ(number_text(1e-7), "1.0e-07");
  EXPECT_EQ(number_text(2.5e-9), "2.5e-09");
  for (const double value : {1.0 / 3.0, 1e-300, std::numeric_limits<double>::max(), 5e-324, -0.95}) {
    EXPECT_EQ(parse_number(number_text(value)), value) << value;
  }
}

}  // namespace
}  // namespace asterism::cli
