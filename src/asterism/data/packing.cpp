#include "asterism/data/packing.h"

#include <limits>
#include <set>
#include <utility>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

/// The documents that may go into the next row, by length.
class Window {
 public:
  Window(std::span<const int64_t> lengths, std::span<const int64_t> order, int64_t size)
      : lengths_(lengths), order_(order), size_(static_cast<size_t>(size)), placed_(order.size(), false) {
    refill();
  }

  bool empty() const { return by_length_.empty(); }

  int64_t take_oldest() {
    while (placed_[oldest_]) ++oldest_;
    return take(by_length_.find({length_at(oldest_), -static_cast<int64_t>(oldest_)}));
  }

  /// The longest document of at most `space` tokens, or -1.
  int64_t take_longest(int64_t space) {
    const auto after = by_length_.upper_bound({space, std::numeric_limits<int64_t>::max()});
    return after == by_length_.begin() ? -1 : take(std::prev(after));
  }

 private:
  using Entry = std::pair<int64_t, int64_t>;  // length, negated position in order: the older of equals comes last

  int64_t length_at(size_t position) const { return lengths_[static_cast<size_t>(order_[position])]; }

  int64_t take(std::set<Entry>::iterator entry) {
    const auto position = static_cast<size_t>(-entry->second);
    by_length_.erase(entry);
    placed_[position] = true;
    refill();
    return order_[position];
  }

  void refill() {
    for (; by_length_.size() < size_ && next_ < order_.size(); ++next_) {
      by_length_.emplace(length_at(next_), -static_cast<int64_t>(next_));
    }
  }

  std::span<const int64_t> lengths_, order_;
  size_t size_;
  std::vector<bool> placed_;
  std::set<Entry> by_length_;
  size_t oldest_ = 0, next_ = 0;
};

/// False when the overlong sample is left out.
bool cut_to_fit(Sample& sample, int64_t sequence_length, Overlong overlong, FitReport& report) {
  if (overlong == Overlong::Error) {
    input_error(sample.origin, ": the row has ", sample.size(), " tokens, more than data.sequence_length ",
                sequence_length, "; raise it, or set data.overlong to drop or truncate");
  }
  const int64_t trained = sample.trained_tokens();
  const int64_t kept = overlong == Overlong::Truncate ? sequence_length : 0;
  report.tokens_lost += sample.size() - kept;
  sample.ids.resize(static_cast<size_t>(kept));
  sample.weights.resize(static_cast<size_t>(kept));
  report.trained_tokens_lost += trained - sample.trained_tokens();
  ++(kept > 0 ? report.truncated : report.dropped);
  return kept > 0;
}

}  // namespace

std::vector<Sample> fit_samples(std::vector<Sample> samples, int64_t sequence_length, Overlong overlong,
                                FitReport& report) {
  if (sequence_length < 1) input_error("data.sequence_length must be at least 1, got ", sequence_length);
  std::vector<Sample> fitting;
  fitting.reserve(samples.size());
  for (Sample& sample : samples) {
    if (sample.size() > sequence_length && !cut_to_fit(sample, sequence_length, overlong, report)) continue;
    if (sample.trained_tokens() == 0) {
      ++report.without_targets;
      continue;
    }
    ++report.kept;
    fitting.push_back(std::move(sample));
  }
  return fitting;
}

std::vector<std::vector<int64_t>> pack_documents(std::span<const int64_t> lengths, std::span<const int64_t> order,
                                                 const PackingOptions& options) {
  if (options.window < 1) input_error("the packing window must be at least 1, got ", options.window);
  for (const int64_t document : order) {
    const int64_t length = lengths[static_cast<size_t>(document)];
    if (length > options.sequence_length) {
      input_error("document ", document, " of ", length, " tokens does not fit a row of ", options.sequence_length);
    }
  }
  std::vector<std::vector<int64_t>> rows;
  for (Window window(lengths, order, options.window); !window.empty();) {
    std::vector<int64_t> row;
    int64_t space = options.sequence_length;
    for (int64_t document = window.take_oldest(); document >= 0; document = window.take_longest(space)) {
      row.push_back(document);
      space -= lengths[static_cast<size_t>(document)];
      if (!options.packing) break;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

PackedRow packed_row(std::span<const Sample> samples, std::span<const int64_t> documents, int64_t index) {
  PackedRow row;
  row.index = index;
  for (const int64_t document : documents) {
    const Sample& sample = samples[static_cast<size_t>(document)];
    const size_t begin = row.weights.size();
    row.ids.insert(row.ids.end(), sample.ids.begin(), sample.ids.end());
    row.weights.insert(row.weights.end(), sample.weights.begin(), sample.weights.end());
    if (begin < row.weights.size()) row.weights[begin] = 0.0f;
    row.lengths.push_back(sample.size());
  }
  return row;
}

}  // namespace asterism::data
