#include "asterism/data/plan_reader.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "asterism/core/error.h"

namespace asterism::data {

/// The rows of one extent whose files can be read in order only.
class PlanReader::Stream {
 public:
  Stream(const DataIndex& index, const std::vector<StreamVisit>& visits, const std::vector<bool>& wanted)
      : index_(index), visits_(visits), wanted_(wanted) {}

  /// The row of a position that is wanted and was not taken before. Reads on as far as it takes.
  std::shared_ptr<const OwnedRow> take(uint32_t position) {
    const std::lock_guard lock(mutex_);
    for (;;) {
      const auto found = held_.find(position);
      if (found != held_.end()) {
        auto row = std::move(found->second);
        held_.erase(found);
        return row;
      }
      if (next_visit_ == visits_.size()) throw std::logic_error("a row was taken twice from a stream");
      read_next();
    }
  }

 private:
  void read_next() {
    const StreamVisit& visit = visits_[next_visit_++];
    if (wanted_[visit.position]) held_[visit.position] = row_of(index_.entries()[visit.sample]);
  }

  std::shared_ptr<const OwnedRow> row_of(const SampleEntry& entry) {
    const DataFile& file = index_.file_of(entry);
    // The next file, or the next pass over this one.
    if (!source_ || file_ != entry.file() || next_row_ > entry.position() + 1) open(entry.file());
    while (next_row_ <= entry.position()) {
      const auto raw = source_->next();
      if (!raw) {
        check_unchanged(file);
        run_error(file.path.string(), ": the file ends before row ", entry.position(),
                  " (counted from 0); it was changed while it was in use");
      }
      if (next_row_++ == entry.position()) row_ = std::make_shared<const OwnedRow>(*raw);
    }
    return row_;
  }

  void open(uint32_t file) {
    check_unchanged(index_.files()[file]);
    source_ = open_rows(index_.files()[file].path);
    file_ = file;
    next_row_ = 0;
  }

  const DataIndex& index_;
  const std::vector<StreamVisit>& visits_;
  const std::vector<bool>& wanted_;  // by position
  std::mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<const OwnedRow>> held_;  // by position
  size_t next_visit_ = 0;
  std::unique_ptr<RowSource> source_;
  uint32_t file_ = 0;
  uint64_t next_row_ = 0;                // number of the row that the source gives next
  std::shared_ptr<const OwnedRow> row_;  // the one before it: several samples may be made of it
};

PlanReader::PlanReader(const SampleReader& samples, std::shared_ptr<const EpochPlan> plan,
                       const std::function<bool(int64_t row)>& is_wanted)
    : samples_(samples), plan_(std::move(plan)) {
  const EpochOrder& order = plan_->order;
  const auto is_empty = [](const std::vector<StreamVisit>& visits) { return visits.empty(); };
  if (std::all_of(order.streams.begin(), order.streams.end(), is_empty)) return;
  wanted_.resize(order.samples.size(), false);
  for (int64_t row = 0; row < plan_->rows.rows(); ++row) {
    if (!is_wanted(row)) continue;
    for (const uint32_t position : plan_->rows.row(row)) wanted_[position] = true;
  }
  for (const std::vector<StreamVisit>& visits : order.streams) {
    if (visits.empty()) continue;
    // Its samples are neighbours in the index, in the order of files and rows.
    const auto [first, last] = std::ranges::minmax(visits, {}, &StreamVisit::sample);
    streams_.push_back({first.sample, last.sample, std::make_unique<Stream>(samples_.index(), visits, wanted_)});
  }
}

PlanReader::~PlanReader() = default;

PackedRow PlanReader::read(int64_t row) const {
  PackedRow packed;
  packed.index = row;
  for (const uint32_t position : plan_->rows.row(row)) append_document(packed, read_position(position));
  return packed;
}

Sample PlanReader::read_position(uint32_t position) const {
  const uint32_t number = plan_->order.samples[position];
  const SampleEntry& entry = samples_.index().entries()[number];
  for (const StreamOfSamples& part : streams_) {
    if (part.first <= number && number <= part.last) {
      return samples_.read(entry, part.stream->take(position)->view());
    }
  }
  return samples_.read(entry);
}

}  // namespace asterism::data
