#include "asterism/data/json_value.h"

#include <gtest/gtest.h>

#include <cmath>

namespace asterism::data {
namespace {

TEST(JsonValue, TruthIsThatOfPython) {
  for (const JsonValue& value : {JsonValue(), JsonValue(false), JsonValue(0), JsonValue(-0.0), JsonValue(""),
                                 JsonValue(JsonValue::Array{}), JsonValue(JsonValue::Object{})}) {
    EXPECT_FALSE(is_truthy(value)) << value.type_name();
  }
  const JsonValue big(JsonValue::BigInteger{"-123456789012345678901234567890"});
  for (const JsonValue& value :
       {JsonValue(true), JsonValue(-1), JsonValue(1e-300), JsonValue(std::nan("")), big, JsonValue("0"),
        JsonValue(JsonValue::Array{JsonValue()}), JsonValue::object({{"", JsonValue()}})}) {
    EXPECT_TRUE(is_truthy(value)) << value.type_name();
  }
}

TEST(JsonValue, MembersKeepTheirOrder) {
  JsonValue value = JsonValue::object({{"z", 1}, {"a", 2}});
  value.set("m", "x");
  value.set("z", 3);
  ASSERT_EQ(value.size(), 3u);
  EXPECT_EQ(value.as_object()[0], (JsonValue::Member{"z", 3}));
  EXPECT_EQ(value.as_object()[2], (JsonValue::Member{"m", "x"}));
  EXPECT_EQ(value.find("b"), nullptr);
  EXPECT_TRUE(value.get("b").is_null());
  EXPECT_EQ(JsonValue("text").find("b"), nullptr);
}

TEST(JsonValue, KindsAreToldApart) {
  EXPECT_NE(JsonValue(1), JsonValue(1.0));
  EXPECT_NE(JsonValue(1), JsonValue(true));
  EXPECT_NE(JsonValue(), JsonValue(false));
  EXPECT_EQ(JsonValue(JsonValue::BigInteger{"10000000000000000000"}).as_number(), 1e19);
  EXPECT_EQ(JsonValue(2.5).as_number(), 2.5);
  EXPECT_STREQ(JsonValue(2.5).type_name(), "number");
  EXPECT_STREQ(JsonValue(JsonValue::Object{}).type_name(), "object");
}

}  // namespace
}  // namespace asterism::data
