#include "asterism/data/packing.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

/// A set of numbers from 0 to a limit that finds the largest member up to a bound: a tree of bitmaps, each bit of a
/// level saying whether a word of the level below is not empty.
class LengthSet {
 public:
  explicit LengthSet(size_t limit) {
    for (size_t bits = limit + 1; levels_.empty() || levels_.back().size() > 1; bits = levels_.back().size()) {
      levels_.emplace_back((bits + kBits - 1) / kBits, 0);
    }
  }

  void insert(size_t number) {
    for (auto& level : levels_) {
      level[number / kBits] |= uint64_t{1} << (number % kBits);
      number /= kBits;
    }
  }

  void erase(size_t number) {
    for (auto& level : levels_) {
      level[number / kBits] &= ~(uint64_t{1} << (number % kBits));
      if (level[number / kBits] != 0) return;
      number /= kBits;
    }
  }

  /// The largest member of at most `bound`, or -1.
  int64_t at_most(size_t bound) const {
    // Climb until a word has a member left of the bound, then descend to the largest one below it.
    for (size_t depth = 0; depth < levels_.size(); ++depth) {
      const uint64_t up_to = levels_[depth][bound / kBits] & (~uint64_t{0} >> (kBits - 1 - bound % kBits));
      if (up_to != 0) return descend(depth, bound / kBits * kBits + highest_bit(up_to));
      if (bound / kBits == 0) return -1;
      bound = bound / kBits - 1;
    }
    return -1;
  }

 private:
  static constexpr size_t kBits = 64;

  static size_t highest_bit(uint64_t word) { return kBits - 1 - static_cast<size_t>(std::countl_zero(word)); }

  int64_t descend(size_t depth, size_t number) const {
    for (; depth > 0; --depth) number = number * kBits + highest_bit(levels_[depth - 1][number]);
    return static_cast<int64_t>(number);
  }

  std::vector<std::vector<uint64_t>> levels_;
};

/// The documents that may go into the next row. Each has a slot; slots are linked by age, and those of equal length as
/// a queue, so that the oldest document of all is also the first of its length.
class Window {
 public:
  Window(std::span<const uint32_t> lengths, int64_t longest, int64_t size)
      : lengths_(lengths), present_(static_cast<size_t>(longest)), queues_(static_cast<size_t>(longest) + 1) {
    const size_t slots = std::min(static_cast<size_t>(size), lengths.size());
    slots_.resize(slots);
    for (uint32_t slot = 0; slot < slots; ++slot) enter(slot);
  }

  bool empty() const { return oldest_ == kNone; }

  uint32_t take_oldest() { return take(oldest_); }

  /// The longest document of at most `space` tokens, or -1.
  int64_t take_longest(int64_t space) {
    const int64_t length = present_.at_most(static_cast<size_t>(space));
    return length < 0 ? -1 : static_cast<int64_t>(take(queues_[static_cast<size_t>(length)].first));
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  struct Slot {
    uint32_t document = 0;
    uint32_t next = kNone;  // of the same length
    uint32_t older = kNone, newer = kNone;
  };
  struct Queue {
    uint32_t first = kNone, last = kNone;
  };

  /// The next document of the order takes the slot.
  void enter(uint32_t slot) {
    if (next_ == lengths_.size()) return;
    const uint32_t length = lengths_[next_];
    slots_[slot] = {static_cast<uint32_t>(next_++), kNone, newest_, kNone};
    (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
    newest_ = slot;
    Queue& queue = queues_[length];
    if (queue.first == kNone) present_.insert(length);
    (queue.first == kNone ? queue.first : slots_[queue.last].next) = slot;
    queue.last = slot;
  }

  /// Removes the document of a slot that is the first of its length.
  uint32_t take(uint32_t slot) {
    const Slot taken = slots_[slot];
    (taken.older == kNone ? oldest_ : slots_[taken.older].newer) = taken.newer;
    (taken.newer == kNone ? newest_ : slots_[taken.newer].older) = taken.older;
    const uint32_t length = lengths_[taken.document];
    queues_[length].first = taken.next;
    if (taken.next == kNone) present_.erase(length);
    enter(slot);
    return taken.document;
  }

  std::span<const uint32_t> lengths_;
  LengthSet present_;          // lengths whose queue is not empty
  std::vector<Queue> queues_;  // by length
  std::vector<Slot> slots_;
  uint32_t oldest_ = kNone, newest_ = kNone;
  size_t next_ = 0;  // document that enters next
};

/// False when the overlong sample is left out.
bool cut_to_fit(Sample& sample, const FitOptions& options, FitReport& report) {
  if (options.overlong == Overlong::Error) {
    input_error(sample.origin, ": the row has ", sample.size(), " tokens, more than data.sequence_length ",
                options.sequence_length, "; raise it, or set data.overlong to drop or truncate");
  }
  const int64_t trained = sample.trained_tokens();
  const int64_t kept = options.overlong == Overlong::Truncate ? options.sequence_length : 0;
  report.tokens_lost += sample.size() - kept;
  sample.ids.resize(static_cast<size_t>(kept));
  sample.weights.resize(static_cast<size_t>(kept));
  report.trained_tokens_lost += trained - sample.trained_tokens();
  ++(kept > 0 ? report.truncated : report.dropped);
  return kept > 0;
}

}  // namespace

FitReport& FitReport::operator+=(const FitReport& other) {
  kept += other.kept;
  dropped += other.dropped;
  truncated += other.truncated;
  tokens_lost += other.tokens_lost;
  trained_tokens_lost += other.trained_tokens_lost;
  without_targets += other.without_targets;
  return *this;
}

bool fit_sample(Sample& sample, const FitOptions& options, FitReport& report) {
  const bool overlong = sample.size() > options.sequence_length;
  if (overlong && !cut_to_fit(sample, options, report)) return false;
  if (sample.trained_tokens() > 0) {
    ++report.kept;
    return true;
  }
  if (options.without_targets == WithoutTargets::Error) {
    input_error(sample.origin, ": nothing in this row is trained", overlong ? " once it is truncated" : "",
                "; correct it, or set data.without_targets: skip to leave such rows out");
  }
  ++report.without_targets;
  return false;
}

std::span<const uint32_t> RowPlan::row(int64_t number) const {
  const uint64_t begin = begins.at(static_cast<size_t>(number)), end = begins.at(static_cast<size_t>(number) + 1);
  return std::span(documents).subspan(begin, end - begin);
}

RowPlan pack_documents(std::span<const uint32_t> lengths, const PackingOptions& options) {
  if (options.window < 1) input_error("the packing window must be at least 1, got ", options.window);
  if (options.sequence_length < 1) {
    input_error("data.sequence_length must be at least 1, got ", options.sequence_length);
  }
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  if (longest != lengths.end() && *longest > options.sequence_length) {
    input_error("document ", longest - lengths.begin(), " of ", *longest, " tokens does not fit a row of ",
                options.sequence_length);
  }
  RowPlan plan;
  plan.documents.reserve(lengths.size());
  // With one document a row nothing is ever chosen: the window holds the next document alone.
  const int64_t window_size = options.packing ? options.window : 1;
  for (Window window(lengths, options.sequence_length, window_size); !window.empty();) {
    int64_t space = options.sequence_length;
    for (int64_t document = window.take_oldest(); document >= 0; document = window.take_longest(space)) {
      plan.documents.push_back(static_cast<uint32_t>(document));
      space -= lengths[static_cast<size_t>(document)];
      if (!options.packing) break;
    }
    plan.begins.push_back(plan.documents.size());
  }
  return plan;
}

void append_document(PackedRow& row, const Sample& sample) {
  const size_t begin = row.weights.size();
  row.ids.insert(row.ids.end(), sample.ids.begin(), sample.ids.end());
  row.weights.insert(row.weights.end(), sample.weights.begin(), sample.weights.end());
  if (begin < row.weights.size()) row.weights[begin] = 0.0f;
  row.lengths.push_back(sample.size());
}

}  // namespace asterism::data
