#include "asterism/parallel/mesh.h"

#include <algorithm>
#include <cstdlib>

#include "asterism/core/error.h"

namespace asterism::parallel {

namespace {

std::vector<int> neighbours(int rank, int size) {
  std::vector<int> members(size);
  for (int i = 0; i < size; ++i) members[i] = rank / size * size + i;
  return members;
}

std::vector<int> counterparts(int rank, int size, int ranks) {
  std::vector<int> members;
  for (int r = rank % size; r < ranks; r += size) members.push_back(r);
  return members;
}

// The divisors of `ranks` below and above `value`, for an error's advice.
std::string nearest_divisors(int ranks, int value) {
  int below = 1, above = ranks;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d != 0) continue;
    if (d <= value) below = d;
    if (d >= value) above = std::min(above, d);
  }
  return below == above ? text(below) : text(below, " or ", above);
}

void check_divides(int ranks, int value, const char* key, const char* meaning) {
  if (value >= 1 && ranks % value == 0) return;
  input_error("parallel.", key, ": ", value, " does not fit ", ranks, " ranks: ", meaning,
              ", so it must divide their number; the nearest values that do are ", nearest_divisors(ranks, value));
}

std::string range_text(int first, int last) {
  return first == last ? text(first) : text(first, "-", last);
}

}  // namespace

std::vector<int> Mesh::shard_group(int rank) const {
  return neighbours(rank, shard);
}

std::vector<int> Mesh::replicate_group(int rank) const {
  return counterparts(rank, shard, ranks);
}

std::vector<int> Mesh::expert_group(int rank) const {
  return neighbours(rank, expert);
}

std::vector<int> Mesh::expert_shard_group(int rank) const {
  return counterparts(rank, expert, ranks);
}

Mesh make_mesh(int ranks, const MeshRequest& request) {
  Mesh mesh;
  mesh.ranks = ranks;
  check_divides(ranks, request.expert, "expert", "each group of this many ranks splits the experts");
  mesh.expert = request.expert;
  if (request.shard != 0) check_divides(ranks, request.shard, "shard", "each group of this many ranks splits a weight");
  if (request.replicate != 0) {
    check_divides(ranks, request.replicate, "replicate", "the ranks make this many copies of the model");
  }
  mesh.replicate = request.replicate != 0 ? request.replicate : request.shard != 0 ? ranks / request.shard : 1;
  mesh.shard = request.shard != 0 ? request.shard : ranks / mesh.replicate;
  if (mesh.shard * mesh.replicate != ranks) {
    input_error(
        "parallel.shard, parallel.replicate: ", mesh.shard, " x ", mesh.replicate, " is ", mesh.shard * mesh.replicate,
        ", but there are ", ranks, " ranks; use parallel.shard: ", ranks / mesh.replicate,
        " with this replicate, parallel.replicate: ", ranks / mesh.shard, " with this shard, or auto for one of them");
  }
  return mesh;
}

ExpertRange expert_range(int num_experts, int position, int ranks) {
  const int first = num_experts * position / ranks;
  return {first, num_experts * (position + 1) / ranks - first};
}

std::string describe_mesh(const Mesh& mesh, int num_experts) {
  std::string lines = text(mesh.ranks, " ranks: dense weights split over ", mesh.shard, " (shard), ", mesh.replicate,
                           mesh.replicate == 1 ? " copy" : " copies", " (replicate); ", num_experts,
                           " experts split over ", mesh.expert, " (expert), each over ", mesh.expert_groups());
  // Beyond these the picture tells nothing new.
  constexpr int kMostGroups = 4, kMostRanks = 8;
  for (int group = 0; group < std::min(mesh.expert_groups(), kMostGroups); ++group) {
    lines += text("\n  expert group ", group, ":");
    for (int p = 0; p < std::min(mesh.expert, kMostRanks); ++p) {
      const int rank = group * mesh.expert + p;
      const ExpertRange range = expert_range(num_experts, p, mesh.expert);
      const std::string experts =
          range.count == 0 ? std::string("none") : range_text(range.first, range.first + range.count - 1);
      lines += text(" [rank ", rank, " | shard ", rank % mesh.shard + 1, "/", mesh.shard, " | experts ", experts, "]");
    }
    if (mesh.expert > kMostRanks) lines += text(" ... ", mesh.expert - kMostRanks, " more");
  }
  if (mesh.expert_groups() > kMostGroups) lines += text("\n  ... ", mesh.expert_groups() - kMostGroups, " more groups");
  return lines;
}

}  // namespace asterism::parallel
