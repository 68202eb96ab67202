#include "asterism/data/sample_reader.h"

#include <algorithm>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

constexpr size_t kMaxOpenFiles = 64;

[[noreturn]] void sample_changed(const DataFile& file, const SampleEntry& entry, const std::string& why) {
  run_error(file.path.string(), ": the row at ", file.seekable ? "byte " : "number ", entry.position(),
            " is not the one that was there when the run began: ", why,
            ". Leave data files alone during a run; start again with the data as they are now under another name");
}

}  // namespace

SampleReader::SampleReader(std::shared_ptr<const DataIndex> index, RowOptions rows, const FitOptions& fit)
    : index_(std::move(index)), rows_(std::move(rows)), fit_(fit) {
  // What the preparation has let pass is known; nothing is to be skipped now.
  rows_.bad_rows = BadRows::Error;
  fit_.without_targets = WithoutTargets::Skip;
}

Sample SampleReader::read(const SampleEntry& entry, const RawRow& row) const {
  const DataFile& file = index_->file_of(entry);
  RowOptions rows = rows_;
  rows.loss.only_part = entry.part;
  std::vector<Sample> samples;
  try {
    samples = samples_of_row(row, rows);
  } catch (const InputError& error) {
    sample_changed(file, entry, error.what());
  }
  FitReport unused;
  if (entry.part >= samples.size()) sample_changed(file, entry, text("it gives ", samples.size(), " samples only"));
  Sample sample = std::move(samples[entry.part]);
  FitOptions fit = fit_;
  if (fit.overlong == Overlong::Error) fit.overlong = Overlong::Drop;
  if (!fit_sample(sample, fit, unused)) sample_changed(file, entry, "it is too long or has nothing to train");
  const SampleEntry now = make_entry(sample, entry.file(), entry.position(), entry.part);
  if (now.tokens != entry.tokens) {
    sample_changed(file, entry, text("it has ", now.tokens, " tokens instead of ", entry.tokens));
  }
  if (now.check != entry.check || now.trained != entry.trained) {
    sample_changed(file, entry, "its tokens or which of them are trained differ");
  }
  return sample;
}

Sample SampleReader::read(const SampleEntry& entry) const {
  check_unchanged(index_->file_of(entry));
  std::unique_ptr<RowSource> source = borrow(entry.file());
  Sample sample = read(entry, source->at(entry.position(), 0));
  give_back(entry.file(), std::move(source));
  return sample;
}

std::unique_ptr<RowSource> SampleReader::borrow(uint32_t file) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(idle_, file, &Idle::value_type::first);
    if (found != idle_.end()) {
      auto source = std::move(found->second);
      idle_.erase(found);
      return source;
    }
  }
  return open_rows(index_->files()[file].path);
}

void SampleReader::give_back(uint32_t file, std::unique_ptr<RowSource> source) const {
  const std::lock_guard lock(mutex_);
  idle_.emplace_front(file, std::move(source));
  if (idle_.size() > kMaxOpenFiles) idle_.pop_back();
}

}  // namespace asterism::data
