#include "asterism/data/dsml_tags.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(DsmlTags, TagsOfEachDialect) {
  const CallTags tags(ChatVariant::V4_0731);
  EXPECT_EQ(tags.block_open, "<｜DSML｜tool_calls");
  EXPECT_EQ(tags.invoke_close, "</｜DSML｜invoke>");
  EXPECT_EQ(CallTags(ChatVariant::V4_1).parameter_close, "</｜DSML｜ parameter>");
  EXPECT_TRUE(holds_other_dialect("a<｜DSML｜ calls>", ChatVariant::V4_0731));
  EXPECT_FALSE(holds_other_dialect("a<｜DSML｜ calls>", ChatVariant::V4_1));
  EXPECT_TRUE(holds_other_dialect("<｜DSML｜tool_calls", ChatVariant::V4_1));
}

TEST(DsmlTags, StrictNamesEndAtTheLastTagEnd) {
  EXPECT_EQ(strict_invoke_name(" name=\"f\">\n"), "f");
  EXPECT_EQ(strict_invoke_name(" name=\"f\">\n\n"), "f");
  EXPECT_EQ(strict_invoke_name("\u2003\x1c\u00a0name=\"f\">\n"), "f");  // white space as Python's re knows it
  EXPECT_EQ(strict_invoke_name("name=\"a\">\nb\">\n"), "a\">\nb");
  EXPECT_EQ(strict_invoke_name("name=\"\">\n"), "");
  for (const char* wrong : {"", "name=\"f\">", "name=\"f\">\n\n\n", "name=\">\n", "x name=\"f\">\n", "name=f>\n"}) {
    EXPECT_FALSE(strict_invoke_name(wrong)) << wrong;
  }
}

TEST(DsmlTags, LenientNamesMayStandInAnyWhiteSpace) {
  const auto name = lenient_invoke_name(" name=\"f\">\r\n  ");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->name, "f");
  EXPECT_FALSE(name->exact);
  EXPECT_TRUE(lenient_invoke_name(" name=\"f\">\n")->exact);
  EXPECT_FALSE(lenient_invoke_name(" name=\"f\" id=\"1\" >text"));
}

TEST(DsmlTags, StrictKeysEndAtTheFirstAttribute) {
  const auto parameter = strict_parameter(" name=\"a\"b\" string=\"yes\">c\" string=\"true\">v\" string=\"false\">w");
  ASSERT_TRUE(parameter);
  EXPECT_EQ(parameter->key, "a\"b\" string=\"yes\">c");
  EXPECT_EQ(parameter->value, "v\" string=\"false\">w");
  EXPECT_TRUE(parameter->is_string.value());
  for (const char* wrong : {"", " name=\"a\">v", "  name=\"a\" string=\"true\">v", " name=\"a\" string=\"True\">v"}) {
    EXPECT_FALSE(strict_parameter(wrong)) << wrong;
  }
}

TEST(DsmlTags, LenientParametersTakeAttributesInAnyOrder) {
  const auto swapped = lenient_parameter("  string=\"False\"\tname=\"a\" type=\"int\" >1 > 0");
  ASSERT_TRUE(swapped);
  EXPECT_EQ(swapped->key, "a");
  EXPECT_EQ(swapped->value, "1 > 0");
  EXPECT_EQ(swapped->is_string, false);
  EXPECT_FALSE(lenient_parameter(" name=\"a\">v")->is_string);
  EXPECT_FALSE(lenient_parameter(" name=\"a\" string=\"maybe\">v")->is_string);
  for (const char* wrong :
       {"", ">v", " string=\"true\">v", " name=\"a\"", " name=a>v", " name=\"a", " name=\"a\"b\">v"}) {
    EXPECT_FALSE(lenient_parameter(wrong)) << wrong;
  }
}

TEST(DsmlTags, ArgumentsAreWrittenAsThePythonModuleDoes) {
  ArgumentsText arguments;
  EXPECT_EQ(arguments.text(), "{}");
  arguments.set("a\"", json_string("x\n\x7f/é"));
  arguments.set("b", " [1,2]");
  arguments.set("a\"", "1");
  EXPECT_TRUE(arguments.has("b"));
  EXPECT_FALSE(arguments.has("c"));
  EXPECT_EQ(arguments.text(), "{\"a\\\"\": 1, \"b\":  [1,2]}");
  EXPECT_EQ(json_string("x\n\x7f/é"), "\"x\\n\x7f/é\"");
}

TEST(DsmlTags, JsonIsWhatTheEncodingReads) {
  for (const char* json : {"1", " {\"a\": NaN}\n", "\"a\"", "null"}) EXPECT_TRUE(is_json(json)) << json;
  for (const char* no_json : {"", "hello", "{oops", "1 2", "\"\\ud800\""}) EXPECT_FALSE(is_json(no_json)) << no_json;
  EXPECT_TRUE(is_blank(" \r\n\t"));
  EXPECT_FALSE(is_blank(" a"));
}

}  // namespace
}  // namespace asterism::data
