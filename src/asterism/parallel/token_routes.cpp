#include "asterism/parallel/token_routes.h"

#include "asterism/parallel/mesh.h"

namespace asterism::parallel {

namespace {

// counts[r][e]: rows that rank r sends for expert e of this rank.
std::vector<std::vector<int64_t>> exchange_counts(const std::vector<int64_t>& offsets, int num_experts,
                                                  dist::Comm& group, const std::string& name) {
  const int64_t mine = expert_range(num_experts, group.rank(), group.size()).count;
  std::vector<int64_t> outgoing_sizes;
  const at::Tensor outgoing = at::empty({num_experts}, at::kLong);
  for (int e = 0; e < num_experts; ++e) outgoing.mutable_data_ptr<int64_t>()[e] = offsets[e + 1] - offsets[e];
  for (int r = 0; r < group.size(); ++r) outgoing_sizes.push_back(expert_range(num_experts, r, group.size()).count);
  const at::Tensor incoming = at::empty({group.size() * mine}, at::kLong);
  group.all_to_all(incoming, outgoing, std::vector<int64_t>(group.size(), mine), outgoing_sizes, name + ": counts");
  std::vector<std::vector<int64_t>> counts;
  const int64_t* next = incoming.const_data_ptr<int64_t>();
  for (int r = 0; r < group.size(); ++r, next += mine) counts.emplace_back(next, next + mine);
  return counts;
}

// Rows of senders first .. last - 1 as they came: by sender, then by expert.
TokenRoutes::Call make_call(const std::vector<std::vector<int64_t>>& counts, size_t first, size_t last,
                            int64_t first_row) {
  std::vector<int64_t> experts;
  for (size_t r = first; r < last; ++r) {
    for (size_t e = 0; e < counts[r].size(); ++e) experts.insert(experts.end(), counts[r][e], static_cast<int64_t>(e));
  }
  const auto rows = static_cast<int64_t>(experts.size());
  const at::Tensor expert_R1 = at::tensor(experts, at::kLong).view({rows, 1});
  return {first_row, rows, ops::make_dispatch(expert_R1, static_cast<int64_t>(counts[first].size()))};
}

}  // namespace

TokenRoutes make_token_routes(const at::Tensor& expert_TK, int num_experts, bool call_per_sender, dist::Comm& group,
                              const std::string& name) {
  TokenRoutes routes;
  routes.outgoing = ops::make_dispatch(expert_TK, num_experts);
  const std::vector<int64_t>& offsets = routes.outgoing.offsets;
  const auto counts = exchange_counts(offsets, num_experts, group, name);
  for (int r = 0; r < group.size(); ++r) {
    const ExpertRange range = expert_range(num_experts, r, group.size());
    routes.send_rows.push_back(offsets[range.first + range.count] - offsets[range.first]);
    int64_t rows = 0;
    for (const int64_t count : counts[r]) rows += count;
    routes.receive_rows.push_back(rows);
  }
  if (counts[0].empty()) return routes;  // more ranks than experts: this one has none
  if (!call_per_sender) {
    routes.calls.push_back(make_call(counts, 0, counts.size(), 0));
    return routes;
  }
  int64_t first_row = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    routes.calls.push_back(make_call(counts, r, r + 1, first_row));
    first_row += routes.receive_rows[r];
  }
  return routes;
}

}  // namespace asterism::parallel
