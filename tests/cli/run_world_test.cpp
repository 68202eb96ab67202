#include "asterism/cli/run_world.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "asterism/core/error.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

/// Sets a variable of the environment for the life of the object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(RunWorld, OneProcessIsAWorldOfOne) {
  EXPECT_EQ(launch_ranks(0, {}), std::nullopt);
  EXPECT_EQ(launch_ranks(1, {}), std::nullopt);
  const auto world = join_world();
  EXPECT_EQ(world->size(), 1);
  const parallel::MeshComms comms = make_comms(world, parallel::make_mesh(1, {}));
  EXPECT_EQ(comms.world->size(), 1);
  comms.expert->barrier("test");
}

TEST(RunWorld, ANumberOfProcessesThatCannotBeIsRefused) {
  EXPECT_THROW(launch_ranks(-1, {}), InputError);
  EXPECT_THROW(launch_ranks(1'000'000, {}), InputError);
}

TEST(RunWorld, ARankDoesNotLaunchOthers) {
  const Variable rank("RANK", "1"), size("WORLD_SIZE", "2"), address("MASTER_ADDR", "127.0.0.1"),
      port("MASTER_PORT", "29999");
  try {
    launch_ranks(4, {});
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 of 2"), std::string::npos) << error.what();
  }
}

TEST(RunWorld, StrictRunsShareTheModelOnOneRankToo) {
  train::Recipe recipe;
  EXPECT_FALSE(shares_model(recipe, mesh_of(recipe, 1)));
  EXPECT_TRUE(shares_model(recipe, mesh_of(recipe, 2)));
  recipe.train.deterministic = train::Determinism::kStrict;
  EXPECT_TRUE(shares_model(recipe, mesh_of(recipe, 1)));
}

TEST(RunWorld, AMeshThatDoesNotFitNamesTheKeys) {
  train::Recipe recipe;
  recipe.parallel.expert = 4;
  EXPECT_THROW(mesh_of(recipe, 2), InputError);
  EXPECT_EQ(mesh_of(recipe, 8).expert, 4);
}

}  // namespace
}  // namespace asterism::cli
