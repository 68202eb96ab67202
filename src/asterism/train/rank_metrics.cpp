#include "asterism/train/rank_metrics.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"

namespace asterism::train {

namespace {

constexpr std::array<std::string_view, 5> kCollectives = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce",
                                                          "broadcast"};
// Columns of the table, a row of which is one collective of one group.
enum Column : int64_t { kCalls, kBytes, kWait, kOverlap, kNumColumns };

using Groups = std::array<const dist::Comm*, 5>;

Groups groups_of(const parallel::MeshComms& comms) {
  return {comms.world.get(), comms.shard.get(), comms.replicate.get(), comms.expert.get(), comms.expert_shard.get()};
}

std::vector<double> column_of(const at::Tensor& table, int64_t column) {
  const at::Tensor values = table.select(1, column).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

}  // namespace

RankMetrics::RankMetrics(const parallel::ShardedModel& shared) : comms_(shared.comms()), before_KV_(totals()) {}

at::Tensor RankMetrics::totals() const {
  const Groups groups = groups_of(comms_);
  const at::Tensor table =
      at::zeros({static_cast<int64_t>(groups.size() * kCollectives.size()), kNumColumns}, at::kDouble);
  double* row = table.mutable_data_ptr<double>();
  for (const dist::Comm* group : groups) {
    for (const std::string_view collective : kCollectives) {
      for (const auto& [name, traffic] : group->traffic()) {
        if (!name.starts_with(collective) || name[collective.size()] != ' ') continue;
        row[kCalls] += static_cast<double>(traffic.calls);
        row[kBytes] += static_cast<double>(traffic.bytes_sent);
        row[kWait] += traffic.wait_seconds;
        row[kOverlap] += traffic.overlap_seconds;
      }
      row += kNumColumns;
    }
  }
  return table;
}

nlohmann::ordered_json RankMetrics::of_step(double seconds) {
  const at::Tensor now_KV = totals(), step_KV = now_KV - before_KV_;
  before_KV_ = now_KV;
  const double waited = step_KV.select(1, kWait).sum().item<double>();
  const at::Tensor facts = at::tensor({seconds, waited, static_cast<double>(peak_resident_bytes())}, at::kDouble);
  const at::Tensor own = at::cat({facts, step_KV.flatten()});
  const dist::Comm& world = *comms_.world;
  const at::Tensor ranks_RM = at::empty({world.size(), own.numel()}, at::kDouble);
  comms_.world->all_gather(ranks_RM, own, "metrics of the ranks");

  nlohmann::ordered_json row;
  row["rank_seconds"] = column_of(ranks_RM, 0);
  row["rank_wait_seconds"] = column_of(ranks_RM, 1);
  double peak = 0.0;
  for (const double bytes : column_of(ranks_RM, 2)) {
    row["rank_peak_memory_bytes"].push_back(static_cast<int64_t>(bytes));
    peak = std::max(peak, bytes);
  }
  row["peak_memory_bytes"] = static_cast<int64_t>(peak);
  const at::Tensor sums_M = ranks_RM.narrow(1, facts.numel(), step_KV.numel()).sum(0);
  const double* sums = sums_M.const_data_ptr<double>();
  for (const dist::Comm* group : groups_of(comms_)) {
    for (const std::string_view collective : kCollectives) {
      const double* sum = std::exchange(sums, sums + kNumColumns);
      if (sum[kCalls] == 0 || group->size() == 1) continue;
      row["communication"][text(group->name(), " ", collective)] = {
          {"calls", static_cast<int64_t>(sum[kCalls]) / world.size()},
          {"bytes", static_cast<int64_t>(sum[kBytes])},
          {"wait_seconds", sum[kWait] / world.size()},
          {"overlap_seconds", sum[kOverlap] / world.size()}};
    }
  }
  return row;
}

}  // namespace asterism::train
