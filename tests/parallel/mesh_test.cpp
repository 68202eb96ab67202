#include "asterism/parallel/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "asterism/core/error.h"

namespace asterism::parallel {
namespace {

std::string error_of(int ranks, const MeshRequest& request) {
  try {
    make_mesh(ranks, request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Mesh, AutoSplitsDenseWeightsOverAllRanks) {
  const Mesh mesh = make_mesh(8, {});
  EXPECT_EQ(mesh.shard, 8);
  EXPECT_EQ(mesh.replicate, 1);
  EXPECT_EQ(make_mesh(8, {.expert = 2, .replicate = 2}).shard, 4);
  EXPECT_EQ(make_mesh(8, {.shard = 2}).replicate, 4);
}

TEST(Mesh, EveryRankIsInOneGroupOfEachKind) {
  for (const int ranks : {1, 2, 4, 6, 8, 12}) {
    for (int expert = 1; expert <= ranks; ++expert) {
      if (ranks % expert != 0) continue;
      for (int shard = 1; shard <= ranks; ++shard) {
        if (ranks % shard != 0) continue;
        const Mesh mesh = make_mesh(ranks, {.expert = expert, .shard = shard});
        using Groups = std::vector<int> (Mesh::*)(int) const;
        for (const Groups groups :
             {&Mesh::shard_group, &Mesh::replicate_group, &Mesh::expert_group, &Mesh::expert_shard_group}) {
          std::set<std::vector<int>> all;
          for (int r = 0; r < ranks; ++r) {
            const std::vector<int> group = (mesh.*groups)(r);
            EXPECT_EQ(std::ranges::count(group, r), 1);
            EXPECT_TRUE(std::ranges::is_sorted(group));
            all.insert(group);
          }
          size_t members = 0;
          for (const auto& group : all) members += group.size();
          EXPECT_EQ(members, static_cast<size_t>(ranks)) << "groups overlap";
        }
      }
    }
  }
}

TEST(Mesh, ExpertGroupsAreNeighbours) {
  EXPECT_EQ(make_mesh(8, {.expert = 4}).expert_group(6), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(make_mesh(8, {.expert = 4}).expert_shard_group(6), (std::vector<int>{2, 6}));
}

TEST(Mesh, RefusedNumbersSayTheNearestOnesThatFit) {
  EXPECT_NE(error_of(8, {.expert = 3}).find("parallel.expert: 3 does not fit 8 ranks"), std::string::npos);
  EXPECT_NE(error_of(8, {.expert = 3}).find("2 or 4"), std::string::npos);
  EXPECT_NE(error_of(6, {.shard = 4}).find("3 or 6"), std::string::npos);
  EXPECT_NE(error_of(4, {.expert = 16}).find("nearest values that do are 4"), std::string::npos);
  const std::string product = error_of(8, {.shard = 4, .replicate = 4});
  EXPECT_NE(product.find("4 x 4 is 16, but there are 8 ranks"), std::string::npos) << product;
  EXPECT_NE(product.find("parallel.shard: 2"), std::string::npos) << product;
}

TEST(Mesh, ExpertsAreSplitEvenlyUpToOne) {
  for (const int experts : {1, 5, 6, 64, 256}) {
    for (const int ranks : {1, 2, 3, 4, 7, 8}) {
      int next = 0, smallest = experts, largest = 0;
      for (int r = 0; r < ranks; ++r) {
        const ExpertRange range = expert_range(experts, r, ranks);
        EXPECT_EQ(range.first, next);
        next += range.count;
        smallest = std::min(smallest, range.count);
        largest = std::max(largest, range.count);
      }
      EXPECT_EQ(next, experts);
      EXPECT_LE(largest - smallest, 1);
    }
  }
}

TEST(Mesh, ThePictureShowsEachRank) {
  const std::string picture = describe_mesh(make_mesh(4, {.expert = 2, .replicate = 2}), 6);
  EXPECT_NE(picture.find("expert group 1: [rank 2 | shard 1/2 | experts 0-2] [rank 3 | shard 2/2 | experts 3-5]"),
            std::string::npos)
      << picture;
}

}  // namespace
}  // namespace asterism::parallel
