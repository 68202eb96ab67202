#include "asterism/data/epoch_plan.h"

#include <numeric>
#include <utility>
#include <vector>

namespace asterism::data {

EpochPlan make_plan(const DataIndex& index, EpochOrder order, const PackingOptions& packing) {
  EpochPlan plan;
  std::vector<uint32_t> lengths;
  lengths.reserve(order.samples.size());
  for (const uint32_t sample : order.samples) {
    lengths.push_back(index.entries()[sample].tokens);
    plan.tokens += lengths.back();
  }
  plan.rows = pack_documents(lengths, packing);
  plan.order = std::move(order);
  return plan;
}

EpochOrder file_order(const DataIndex& index, std::span<const Extent> extents) {
  EpochOrder order;
  order.samples.resize(index.entries().size());
  std::iota(order.samples.begin(), order.samples.end(), 0);
  for (const Extent& extent : extents) {
    std::vector<StreamVisit>& visits = order.streams.emplace_back();
    for (uint32_t i = 0; !extent.seekable && i < extent.count; ++i)
      visits.push_back({extent.first + i, extent.first + i});
  }
  return order;
}

}  // namespace asterism::data
