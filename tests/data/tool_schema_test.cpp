#include "asterism/data/tool_schema.h"

#include <gtest/gtest.h>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

std::string mismatch(const char* value, const char* schema) {
  return schema_mismatch(json(value), json(schema), "v");
}

TEST(ToolSchema, TypesAreThoseOfJson) {
  const std::pair<const char*, const char*> fitting[] = {
      {"\"x\"", "string"}, {"1", "integer"},  {"1.0", "integer"},  {"123456789012345678901", "integer"},
      {"1", "number"},     {"1.5", "number"}, {"true", "boolean"}, {"[]", "array"},
      {"{}", "object"},    {"null", "null"},  {"\"x\"", "STRING"}, {"5", "date-time"},
  };
  for (const auto& [value, type] : fitting) {
    EXPECT_EQ(mismatch(value, text("{\"type\": \"", type, "\"}").c_str()), "") << value << " " << type;
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"1", "string"}, {"\"1\"", "integer"}, {"1.5", "integer"}, {"\"1\"", "number"}, {"1", "boolean"},
      {"{}", "array"}, {"[]", "object"},     {"0", "null"},      {"null", "string"},
  };
  for (const auto& [value, type] : wrong) {
    const std::string message = mismatch(value, text("{\"type\": \"", type, "\"}").c_str());
    EXPECT_EQ(message, text("v is ", value, ", not of type ", type));
  }
  EXPECT_EQ(mismatch("null", R"({"type": ["string", "null"]})"), "");
  EXPECT_EQ(mismatch("null", R"({"type": "string", "nullable": true})"), "");
  EXPECT_EQ(mismatch("1", R"({"type": ["string", "null"]})"), "v is 1, not of type string or null");
}

TEST(ToolSchema, ChoicesAreCompared) {
  EXPECT_EQ(mismatch("\"C\"", R"({"enum": ["C", "F"]})"), "");
  EXPECT_EQ(mismatch("\"K\"", R"({"enum": ["C", "F"]})"), R"(v is "K", not one of ["C", "F"])");
  EXPECT_EQ(mismatch("2", R"({"const": 1})"), "v is 2, not 1");
}

TEST(ToolSchema, KeysAreRequiredAndKnown) {
  const char* schema = R"({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"},
      "days": {"type": "array", "items": {"type": "integer"}}, "where": {"properties": {"x": {}}}}})";
  EXPECT_EQ(mismatch(R"({"city": "Bern", "days": [1, 2], "where": {"x": 1}})", schema), "");
  EXPECT_EQ(mismatch("{}", schema), "v has no city, which is required");
  EXPECT_EQ(mismatch(R"({"city": "Bern", "town": 1})", schema), "v.town is not declared");
  EXPECT_EQ(mismatch(R"({"city": 5})", schema), "v.city is 5, not of type string");
  EXPECT_EQ(mismatch(R"({"city": "Bern", "days": [1, "2"]})", schema), "v.days[1] is \"2\", not of type integer");
  EXPECT_EQ(mismatch(R"({"city": "Bern", "where": {"y": 1}})", schema), "v.where.y is not declared");
}

TEST(ToolSchema, OtherKeysMayBeAllowed) {
  EXPECT_EQ(mismatch(R"({"x": 1})", R"({"properties": {}, "additionalProperties": true})"), "");
  EXPECT_EQ(mismatch(R"({"x": 1})", R"({"properties": {}, "additionalProperties": {"type": "integer"}})"), "");
  EXPECT_NE(mismatch(R"({"x": "1"})", R"({"properties": {}, "additionalProperties": {"type": "integer"}})"), "");
  EXPECT_NE(mismatch(R"({"x": 1})", R"({"properties": {}, "additionalProperties": false})"), "");
  EXPECT_EQ(mismatch(R"({"x": 1})", R"({"type": "object"})"), "");
}

TEST(ToolSchema, SchemasAreCombined) {
  const char* either = R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})";
  EXPECT_EQ(mismatch("1", either), "");
  EXPECT_EQ(mismatch("1.5", either), "v is 1.5, which fits none of anyOf");
  EXPECT_EQ(mismatch("1.5", R"({"allOf": [{"type": "number"}, {"type": "integer"}]})"),
            "v is 1.5, not of type integer");
}

TEST(ToolSchema, BrokenSchemasFitEverything) {
  for (const char* schema : {"null", "true", "[]", R"({"type": 5, "enum": 3, "required": "x", "properties": [],
                                                       "items": 1, "anyOf": [], "allOf": {}})"}) {
    EXPECT_EQ(mismatch(R"({"x": [1]})", schema), "") << schema;
  }
}

}  // namespace
}  // namespace asterism::data
