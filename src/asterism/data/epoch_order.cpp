#include "asterism/data/epoch_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"

namespace asterism::data {
namespace {

/// Visits to be merged with those of other lists.
struct VisitList {
  std::vector<uint32_t> samples;  // in the order of visiting
  std::vector<uint32_t> read_as;  // of a stream: which of its reads each visit is; empty otherwise
  size_t extent = 0;              // of a stream
};

/// Fisher-Yates.
void permute(std::span<uint32_t> order, const RandomStream& stream) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
}

std::vector<uint32_t> counting_from(uint32_t first, size_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The samples of the extent as often as the epoch visits them, pass after pass.
std::vector<uint32_t> visits_of(const Extent& extent, size_t number, const OrderOptions& options, int64_t epoch) {
  const double whole = std::floor(extent.weight), part = extent.weight - whole;
  std::vector<uint32_t> visits;
  visits.reserve(static_cast<size_t>(std::ceil(extent.weight * extent.count)));
  for (double pass = 0; pass < whole; pass += 1.0) {
    for (uint32_t i = 0; i < extent.count; ++i) visits.push_back(extent.first + i);
  }
  if (part == 0.0) return visits;
  std::vector<uint32_t> place = counting_from(0, extent.count);
  permute(place, RandomStream(options.seed, "data.share", {number}));
  const double before = static_cast<double>(epoch) * part, after = static_cast<double>(epoch + 1) * part;
  for (uint32_t i = 0; i < extent.count; ++i) {
    const double u = (place[i] + 0.5) / extent.count;
    if (std::floor(after + u) > std::floor(before + u)) visits.push_back(extent.first + i);
  }
  return visits;
}

/// Numbers of the reads 0 .. count - 1 in the order in which a shuffle buffer emits them.
std::vector<uint32_t> through_buffer(size_t count, int64_t size, const RandomStream& stream) {
  std::vector<uint32_t> buffer, emitted;
  emitted.reserve(count);
  const auto emit = [&](size_t chosen) {
    emitted.push_back(buffer[chosen]);
    return chosen;
  };
  const auto choose = [&] { return stream.below(buffer.size(), emitted.size()); };
  for (uint32_t read = 0; read < count; ++read) {
    if (buffer.size() < static_cast<size_t>(size)) {
      buffer.push_back(read);
    } else {
      buffer[emit(choose())] = read;
    }
  }
  while (!buffer.empty()) {
    std::swap(buffer[emit(choose())], buffer.back());
    buffer.pop_back();
  }
  return emitted;
}

/// Merges the lists so that every prefix holds of each list its share, as nearly as whole visits allow.
EpochOrder merge(std::vector<VisitList> lists, std::vector<std::vector<StreamVisit>> streams) {
  EpochOrder order{{}, std::move(streams)};
  size_t total = 0;
  for (const VisitList& list : lists) total += list.samples.size();
  order.samples.reserve(total);
  using Next = std::pair<double, size_t>;  // where the next visit of a list lies between 0 and 1, and the list
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::vector<size_t> taken(lists.size(), 0);
  const auto enqueue = [&](size_t number) {
    const size_t size = lists[number].samples.size();
    if (taken[number] < size) queue.emplace((taken[number] + 0.5) / static_cast<double>(size), number);
  };
  for (size_t number = 0; number < lists.size(); ++number) enqueue(number);
  while (!queue.empty()) {
    const size_t number = queue.top().second;
    queue.pop();
    const VisitList& list = lists[number];
    const size_t visit = taken[number]++;
    if (!list.read_as.empty()) {
      order.streams[list.extent][list.read_as[visit]].position = static_cast<uint32_t>(order.samples.size());
    }
    order.samples.push_back(list.samples[visit]);
    enqueue(number);
  }
  return order;
}

VisitList stream_list(const Extent& extent, size_t number, const OrderOptions& options, int64_t epoch,
                      std::vector<StreamVisit>& reads) {
  VisitList list;
  list.extent = number;
  for (const uint32_t sample : visits_of(extent, number, options, epoch)) reads.push_back({sample, 0});
  const RandomStream stream(options.seed, "data.shuffle_buffer", {static_cast<uint64_t>(epoch), number});
  list.read_as =
      options.shuffle ? through_buffer(reads.size(), options.shuffle_buffer, stream) : counting_from(0, reads.size());
  for (const uint32_t read : list.read_as) list.samples.push_back(reads[read].sample);
  return list;
}

void check_count(std::span<const Extent> extents) {
  double visits = 0.0;
  for (const Extent& extent : extents) visits += std::ceil(extent.weight * extent.count);
  if (visits < static_cast<double>(std::numeric_limits<uint32_t>::max())) return;
  input_error("an epoch of the data would have ", visits,
              " samples, at most 4294967294 are possible; lower the weights ",
              "of data.train, or split the data into several runs");
}

}  // namespace

EpochOrder epoch_order(std::span<const Extent> extents, const OrderOptions& options, int64_t epoch) {
  if (options.shuffle_buffer < 1) input_error("data.shuffle_buffer must be at least 1, got ", options.shuffle_buffer);
  check_count(extents);
  std::vector<VisitList> lists;
  std::vector<std::vector<StreamVisit>> streams(extents.size());
  VisitList permuted;
  for (size_t number = 0; number < extents.size(); ++number) {
    const Extent& extent = extents[number];
    if (!extent.seekable) {
      lists.push_back(stream_list(extent, number, options, epoch, streams[number]));
      continue;
    }
    std::vector<uint32_t> visits = visits_of(extent, number, options, epoch);
    if (!options.shuffle) {
      lists.push_back({std::move(visits), {}, number});
    } else if (permuted.samples.empty()) {
      permuted.samples = std::move(visits);
    } else {
      permuted.samples.insert(permuted.samples.end(), visits.begin(), visits.end());
    }
  }
  permute(permuted.samples, RandomStream(options.seed, "data.permutation", {static_cast<uint64_t>(epoch)}));
  if (!permuted.samples.empty()) lists.push_back(std::move(permuted));
  // The usual case needs no merging, which takes most of the time of a large epoch.
  if (lists.size() == 1 && lists.front().read_as.empty()) return {std::move(lists.front().samples), std::move(streams)};
  return merge(std::move(lists), std::move(streams));
}

bool epochs_are_alike(std::span<const Extent> extents, const OrderOptions& options) {
  const auto is_whole = [](const Extent& extent) { return extent.weight == std::floor(extent.weight); };
  return !options.shuffle && std::all_of(extents.begin(), extents.end(), is_whole);
}

}  // namespace asterism::data
