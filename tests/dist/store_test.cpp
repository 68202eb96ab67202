#include "asterism/dist/store.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/dist/rank_runs.h"

namespace asterism::dist {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::free_port;

TEST(Store, KeepsTextsForAllConnections) {
  const auto server = Store::serve(0, /*local=*/true, "run");
  const auto client = Store::connect("127.0.0.1", server->port(), "run", 5s);
  client->set("a", std::string("x\0y", 3));
  EXPECT_EQ(server->find("a"), std::string("x\0y", 3));
  EXPECT_FALSE(server->find("b").has_value());
  server->set("empty", "");
  EXPECT_EQ(client->find("empty"), "");
  EXPECT_TRUE(client->has_all({"a", "empty"}));
  EXPECT_FALSE(client->has_all({"a", "b"}));
  EXPECT_EQ(client->another_connection()->get_all({"empty", "a"}).at(0), "");
}

TEST(Store, KeepsTheFirstOfTwo) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  EXPECT_EQ(store->set_first("failure", "one"), "one");
  EXPECT_EQ(store->another_connection()->set_first("failure", "two"), "one");
}

TEST(Store, Counts) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  EXPECT_EQ(store->add("count", 0), 0);
  EXPECT_EQ(store->another_connection()->add("count", 2), 2);
  EXPECT_EQ(store->add("count", 1), 3);
}

TEST(Store, KeepsRunsApart) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  store->set("a", "1");
  EXPECT_FALSE(Store::connect("127.0.0.1", store->port(), "another", 5s)->find("a").has_value());
}

TEST(Store, RefusesAPortThatIsTaken) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  for (const bool local : {true, false}) {
    const std::string error = error_of<InputError>([&] { Store::serve(store->port(), local, "run"); });
    EXPECT_NE(error.find(text("port ", store->port())), std::string::npos) << error;
  }
}

TEST(Store, SaysWhereNobodyListens) {
  const uint16_t port = free_port();
  const std::string error = error_of<RunError>([&] { Store::connect("127.0.0.1", port, "run", 100ms); });
  EXPECT_NE(error.find(text("127.0.0.1:", port, " within 0.1 s")), std::string::npos) << error;
}

TEST(Store, SaysThatItIsLost) {
  auto server = Store::serve(0, /*local=*/true, "run");
  const auto client = Store::connect("127.0.0.1", server->port(), "run", 5s);
  server.reset();
  EXPECT_THROW(client->find("a"), StoreLost);
}

}  // namespace
}  // namespace asterism::dist
