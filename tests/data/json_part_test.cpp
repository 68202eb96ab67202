#include "asterism/data/json_part.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace asterism::data {
namespace {

TEST(JsonPart, ReadsMembersOfTheAskedKind) {
  const auto json = nlohmann::json::parse(R"({"a": [1, "x"], "b": true, "c": null})");
  const JsonPart part(json, "file");
  EXPECT_EQ(part.at("a").array_size(), 2u);
  EXPECT_EQ(part.at("a").element(0).as_integer(), 1);
  EXPECT_EQ(part.at("a").element(1).as_string(), "x");
  EXPECT_TRUE(part.at("b").as_flag());
  EXPECT_FALSE(part.find("c").has_value());
  EXPECT_FALSE(part.find("d").has_value());
  EXPECT_TRUE(part.flag("c", true));
}

TEST(JsonPart, ErrorsNameThePlace) {
  const auto json = nlohmann::json::parse(R"({"a": {"b": 1}})");
  const JsonPart part(json, "file.json");
  for (const auto& fail :
       {+[](const JsonPart& p) { p.at("a").at("b").as_string(); },
        +[](const JsonPart& p) { p.at("a").at("b").as_flag(); }, +[](const JsonPart& p) { p.at("a").at("missing"); },
        +[](const JsonPart& p) { p.at("a").array_size(); }}) {
    try {
      fail(part);
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("file.json"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("a"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace asterism::data
