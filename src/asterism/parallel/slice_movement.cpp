#include "asterism/parallel/slice_movement.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace asterism::parallel {

namespace {

constexpr int64_t kStretchBytes = 8 << 20;  // that rank 0 has in hand at a time

/// Who wants or has which slice. The slices, laid one after the other in the order of ranks, move in stretches.
struct SliceTable {
  std::vector<int64_t> begin, count;  // by rank; none of rank 0, which needs no movement
  int64_t stretch = 1;                // elements of a round

  int64_t rounds() const { return (std::reduce(count.begin(), count.end()) + stretch - 1) / stretch; }

  /// What part of its slice each rank moves in a round.
  struct Share {
    std::vector<int64_t> first, rows;
  };
  Share share(int64_t round) const {
    Share share;
    int64_t place = 0;
    for (const int64_t elements : count) {
      const int64_t first = std::clamp<int64_t>(round * stretch - place, 0, elements);
      const int64_t last = std::clamp<int64_t>((round + 1) * stretch - place, 0, elements);
      share.first.push_back(first);
      share.rows.push_back(last - first);
      place += elements;
    }
    return share;
  }
};

SliceTable exchange_slices(dist::Comm& comm, int64_t begin, const at::Tensor& slice, const std::string& what) {
  const at::Tensor own = at::tensor({begin, slice.numel()}, at::kLong), all = at::empty({comm.size(), 2}, at::kLong);
  comm.all_gather(all, own, what + ": slices");
  SliceTable table;
  const auto* next = all.const_data_ptr<int64_t>();
  for (int r = 0; r < comm.size(); ++r, next += 2) {
    table.begin.push_back(next[0]);
    table.count.push_back(r == 0 ? 0 : next[1]);
  }
  table.stretch = kStretchBytes / static_cast<int64_t>(slice.element_size());
  return table;
}

// The rows of one rank alone.
std::vector<int64_t> only(size_t rank, int64_t rows, size_t ranks) {
  std::vector<int64_t> counts(ranks, 0);
  counts[rank] = rows;
  return counts;
}

}  // namespace

void StreamedSlices::read(const std::string& name, int64_t begin, const at::Tensor& out) {
  const SliceTable table = exchange_slices(comm_, begin, out, name);
  const auto rank = static_cast<size_t>(comm_.rank()), ranks = static_cast<size_t>(comm_.size());
  const at::Tensor none = at::empty({0}, out.options());
  if (rank == 0) source_->read(name, begin, out);
  for (int64_t round = 0; round < table.rounds(); ++round) {
    const auto [first, rows] = table.share(round);
    if (rank != 0) {
      comm_.all_to_all(out.narrow(0, first[rank], rows[rank]), none, only(0, rows[rank], ranks), only(0, 0, ranks),
                       name);
      continue;
    }
    const at::Tensor stretch = at::empty({std::reduce(rows.begin(), rows.end())}, out.options());
    int64_t next = 0;
    for (size_t r = 1; r < ranks; next += rows[r++]) {
      source_->read(name, table.begin[r] + first[r], stretch.narrow(0, next, rows[r]));
    }
    comm_.all_to_all(none, stretch, only(0, 0, ranks), rows, name);
  }
}

void collect_slices(dist::Comm& comm, int64_t begin, const at::Tensor& own, const SliceSink& sink,
                    const std::string& what) {
  const SliceTable table = exchange_slices(comm, begin, own, what);
  const auto rank = static_cast<size_t>(comm.rank()), ranks = static_cast<size_t>(comm.size());
  const at::Tensor none = at::empty({0}, own.options());
  if (rank == 0 && own.numel() > 0) sink(begin, own);
  for (int64_t round = 0; round < table.rounds(); ++round) {
    const auto [first, rows] = table.share(round);
    if (rank != 0) {
      comm.all_to_all(none, own.narrow(0, first[rank], rows[rank]), only(0, 0, ranks), only(0, rows[rank], ranks),
                      what);
      continue;
    }
    const at::Tensor stretch = at::empty({std::reduce(rows.begin(), rows.end())}, own.options());
    comm.all_to_all(stretch, none, rows, only(0, 0, ranks), what);
    int64_t next = 0;
    for (size_t r = 1; r < ranks; next += rows[r++]) {
      if (rows[r] > 0) sink(table.begin[r] + first[r], stretch.narrow(0, next, rows[r]));
    }
  }
}

}  // namespace asterism::parallel
