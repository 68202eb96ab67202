#pragma once

#include <string>
#include <vector>

namespace asterism::parallel {

/// What a recipe asks for; 0 = auto.
struct MeshRequest {
  int expert = 1;     // ranks that split the experts
  int shard = 0;      // ranks that split each dense weight; auto = all / replicate
  int replicate = 0;  // copies of the sharded model; auto = all / shard
};

/// How `ranks` ranks share a model. Every rank is in exactly one group of each kind:
///   shard         `shard` neighbouring ranks; each keeps an equal part of every dense weight
///   replicate     the ranks, one of every shard group, that keep the same part
///   expert        `expert` neighbouring ranks; each keeps some whole experts of every layer, tokens travel inside
///   expert_shard  the ranks, one of every expert group, that keep the same experts: each an equal part of them
/// All ranks read rows of their own.
struct Mesh {
  int ranks = 1;
  int expert = 1;
  int shard = 1;
  int replicate = 1;

  int expert_groups() const { return ranks / expert; }

  /// Members of the group in which `rank` is, ascending.
  std::vector<int> shard_group(int rank) const;
  std::vector<int> replicate_group(int rank) const;
  std::vector<int> expert_group(int rank) const;
  std::vector<int> expert_shard_group(int rank) const;
};

/// InputError, naming the recipe's keys and the nearest values that fit, when the number of ranks cannot be split so.
Mesh make_mesh(int ranks, const MeshRequest& request);

/// Experts first .. first + count - 1.
struct ExpertRange {
  int first = 0;
  int count = 0;
};

/// The experts of position `position` in a group of `ranks`: contiguous, sizes differing by one at most. A group may be
/// larger than the number of experts: some ranks then have none.
ExpertRange expert_range(int num_experts, int position, int ranks);

/// A picture of the mesh, one line per expert group, for the start of a run.
std::string describe_mesh(const Mesh& mesh, int num_experts);

}  // namespace asterism::parallel
