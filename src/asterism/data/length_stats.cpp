#include "asterism/data/length_stats.h"

#include <cmath>

#include "asterism/data/packing.h"

namespace asterism::data {
namespace {

constexpr size_t kPackedAtOnce = size_t{1} << 20;
constexpr int64_t kSmallestBar = 64;

}  // namespace

void LengthStats::add(int64_t length) {
  ++documents_[length];
  ++count_;
  sum_ += length;
}

double LengthStats::mean() const {
  return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

int64_t LengthStats::percentile(double share) const {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(count_)));
  int64_t seen = 0;
  for (const auto& [length, documents] : documents_) {
    seen += documents;
    if (seen >= wanted) return length;
  }
  return 0;
}

std::vector<LengthStats::Bar> LengthStats::histogram() const {
  std::vector<Bar> bars;
  int64_t above = 0, up_to = kSmallestBar;
  for (const auto& [length, documents] : documents_) {
    while (length > up_to) {
      if (!bars.empty()) bars.push_back({up_to, up_to * 2, 0});
      above = up_to;
      up_to *= 2;
    }
    if (bars.empty()) bars.push_back({above, up_to, 0});
    bars.back().documents += documents;
  }
  return bars;
}

double FitSummary::fill_ratio() const {
  return rows == 0 ? 0.0
                   : static_cast<double>(tokens) / (static_cast<double>(rows) * static_cast<double>(sequence_length));
}

void FitCounter::add(int64_t length) {
  if (length > summary_.sequence_length) {
    ++summary_.dropped;
    summary_.dropped_tokens += length;
    return;
  }
  summary_.tokens += length;
  pending_.push_back(static_cast<uint32_t>(length));
  if (pending_.size() < kPackedAtOnce) return;
  summary_.rows += pending_rows();
  pending_.clear();
}

FitSummary FitCounter::summary() const {
  FitSummary result = summary_;
  result.rows += pending_rows();
  return result;
}

int64_t FitCounter::pending_rows() const {
  return pack_documents(pending_, {.sequence_length = summary_.sequence_length}).rows();
}

}  // namespace asterism::data
