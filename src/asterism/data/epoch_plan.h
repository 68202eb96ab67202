#pragma once

#include <cstdint>

#include "asterism/data/data_index.h"
#include "asterism/data/epoch_order.h"
#include "asterism/data/packing.h"

namespace asterism::data {

/// What an epoch reads and in which rows it stands: about 8 bytes a visit.
struct EpochPlan {
  EpochOrder order;
  RowPlan rows;  // its documents are positions in order.samples

  int64_t tokens = 0;  // of all rows
};

/// The samples of the index in the given order, packed.
EpochPlan make_plan(const DataIndex& index, EpochOrder order, const PackingOptions& packing);

/// Every sample once, as the files have them.
EpochOrder file_order(const DataIndex& index, std::span<const Extent> extents);

}  // namespace asterism::data
