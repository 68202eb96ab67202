#include "asterism/data/inspection.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "asterism/data/fingerprint.h"
#include "asterism/data/ordered_tasks.h"
#include "asterism/data/row_batches.h"

namespace asterism::data {
namespace {

constexpr int64_t kBatchesPerWorker = 4;
constexpr size_t kLongestRows = 5;

/// What a worker finds out about a row.
struct RowFacts {
  std::string origin;
  std::optional<RowKind> kind{};    // of a good row
  std::string category{}, error{};  // of a bad one
  struct SampleFacts {
    int64_t tokens, trained;
  };
  std::vector<SampleFacts> samples{};
  std::vector<RowWarning> warnings{};
  uint64_t content = 0;  // equal for rows that give equal samples
};

uint64_t content_of(const std::vector<Sample>& samples) {
  Fingerprint content;
  content.add(static_cast<uint64_t>(samples.size()));
  for (const Sample& sample : samples) {
    content.add(static_cast<uint64_t>(sample.ids.size()));
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      content.add(static_cast<uint64_t>(sample.ids[t]) << 32 | std::bit_cast<uint32_t>(sample.weights[t]));
    }
  }
  return content.value();
}

RowFacts facts_of(const RawRow& raw, const RowOptions& options) {
  RowFacts facts{.origin = raw.origin};
  try {
    const ReadRow row = read_row(raw, options);
    const std::vector<Sample> samples = samples_of(row, raw, options);
    for (const Sample& sample : samples) facts.samples.push_back({sample.size(), sample.trained_tokens()});
    if (row.chat) facts.warnings = review_conversation(*row.chat);
    facts.content = content_of(samples);
    facts.kind = row.kind;
  } catch (const RowError& error) {
    facts.category = error.category();
    facts.error = error.what();
  }
  return facts;
}

/// Runs in the workers.
std::vector<RowFacts> facts_of_batch(const RowBatch& batch, const RowOptions& options) {
  std::vector<RowFacts> facts;
  for (const OwnedRow& row : batch.rows) facts.push_back(facts_of(row.view(), options));
  return facts;
}

void count(std::map<std::string, Finding>& findings, const std::string& name, const std::string& first) {
  Finding& finding = findings[name];
  if (finding.rows++ == 0) finding.first = first;
}

/// Adds up facts in the order of the rows.
class Summary {
 public:
  Summary() {
    for (const int64_t length : kInspectedLengths) fits_.emplace_back(length);
  }

  void add(const RowFacts& row) {
    ++result_.rows;
    if (!row.kind) return count(result_.bad, row.category, row.error);
    ++result_.kinds[*row.kind];
    for (const RowWarning& warning : row.warnings) warn(warning.code, row, warning.explanation);
    int64_t tokens = 0;
    bool trained = false;
    for (const auto& sample : row.samples) {
      ++result_.samples;
      tokens += sample.tokens;
      result_.trained_tokens += sample.trained;
      result_.lengths.add(sample.tokens);
      if (sample.trained == 0) continue;
      trained = true;
      for (FitCounter& fit : fits_) fit.add(sample.tokens);
    }
    result_.tokens += tokens;
    if (!trained) warn("nothing_to_train", row, "no token of the row is trained");
    look_for_duplicate(row);
    keep_longest({tokens, result_.rows, row.origin});
  }

  DataSummary result() && {
    for (const FitCounter& fit : fits_) result_.fits.push_back(fit.summary());
    return std::move(result_);
  }
  int64_t rows() const { return result_.rows; }

 private:
  void warn(const std::string& code, const RowFacts& row, const std::string& explanation) {
    count(result_.warnings, code, text(row.origin, ": ", explanation));
  }

  void look_for_duplicate(const RowFacts& row) {
    const auto known = seen_.find(row.content);
    if (known != seen_.end()) {
      warn("duplicate_row", row, text("gives the same tokens as row ", known->second));
    } else if (seen_.size() < kComparedRows) {
      seen_.emplace(row.content, result_.rows);
    } else {
      result_.all_rows_compared = false;
    }
  }

  void keep_longest(LongRow row) {
    auto& longest = result_.longest;
    const auto place =
        std::find_if(longest.begin(), longest.end(), [&](const LongRow& l) { return l.tokens < row.tokens; });
    if (place == longest.end() && longest.size() == kLongestRows) return;
    longest.insert(place, std::move(row));
    if (longest.size() > kLongestRows) longest.pop_back();
  }

  DataSummary result_;
  std::vector<FitCounter> fits_;
  std::unordered_map<uint64_t, int64_t> seen_;  // number of the first row with this content
};

}  // namespace

int64_t DataSummary::bad_rows() const {
  int64_t total = 0;
  for (const auto& [category, finding] : bad) total += finding.rows;
  return total;
}

DataSummary inspect_data(const std::vector<std::filesystem::path>& files, const InspectionOptions& options) {
  RowBatches rows(files);
  Summary summary;
  OrderedTasks<std::vector<RowFacts>> tasks(options.workers);
  const auto most_pending = static_cast<size_t>(options.workers * kBatchesPerWorker + 1);
  for (bool more = true; more || tasks.pending() > 0;) {
    while (more && tasks.pending() < most_pending) {
      const std::shared_ptr<const RowBatch> batch = rows.next();
      more = batch != nullptr;
      if (more) tasks.submit([batch, &options] { return facts_of_batch(*batch, options.rows); });
    }
    if (tasks.pending() == 0) break;
    for (const RowFacts& facts : tasks.take()) summary.add(facts);
    if (options.progress) options.progress(summary.rows());
  }
  return std::move(summary).result();
}

InspectedRow inspect_row(const std::vector<std::filesystem::path>& files, int64_t number, const RowOptions& options) {
  RowBatches batches(files);
  int64_t before = 0;  // rows in front of the batch
  while (const std::shared_ptr<const RowBatch> batch = batches.next()) {
    const auto place = number - before - 1;
    before += static_cast<int64_t>(batch->rows.size());
    if (place >= static_cast<int64_t>(batch->rows.size())) continue;
    const RawRow raw = batch->rows.at(static_cast<size_t>(place)).view();
    const ReadRow row = read_row(raw, options);
    InspectedRow result{raw.origin, row.kind, samples_of(row, raw, options), {}};
    if (row.chat) result.warnings = review_conversation(*row.chat);
    return result;
  }
  input_error("there is no row ", number, ": the data have ", before, " rows");
}

}  // namespace asterism::data
