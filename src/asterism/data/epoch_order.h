#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace asterism::data {

/// Samples that stand together in the index: those of one source, or of a part of it whose files are all alike in
/// being seekable or not.
struct Extent {
  uint32_t first = 0, count = 0;
  double weight = 1.0;   // how often an epoch visits each of them
  bool seekable = true;  // false: they can be read in order only
};

struct OrderOptions {
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t shuffle_buffer = 10000;  // samples
};

/// A visit of a sample that can be read in order only.
struct StreamVisit {
  uint32_t sample;
  uint32_t position;  // in EpochOrder::samples
};

struct EpochOrder {
  std::vector<uint32_t> samples;                  // the samples that the epoch visits, in order
  std::vector<std::vector<StreamVisit>> streams;  // of each extent, in the order of reading; empty where seekable
};

/// The order of an epoch, which depends on the arguments alone.
///
/// How often: with weight w, a sample is visited by floor((e + 1) w + u) - floor(e w + u) of epochs 0, 1, ..., where u
/// in [0, 1) depends on seed and sample and is spread evenly. So weight 1 is once and 2 is twice in every epoch, and
/// 0.5 is one half of the samples in even epochs and the other in odd ones.
///
/// In which order: with `shuffle`, the samples of all seekable extents are one permutation given by (seed, epoch);
/// those of any other extent pass through a shuffle buffer, which emits a random one of its samples and puts the next
/// in its place. Without, each extent is visited as it stands. These lists are then merged in proportion to their
/// lengths. A list with a weight above 1 is passed over several times, the last time perhaps in part.
///
/// InputError when an epoch would visit 2^32 samples or more.
EpochOrder epoch_order(std::span<const Extent> extents, const OrderOptions& options, int64_t epoch);

/// Whether every epoch visits the same samples in the same order.
bool epochs_are_alike(std::span<const Extent> extents, const OrderOptions& options);

}  // namespace asterism::data
