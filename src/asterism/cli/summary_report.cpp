#include "asterism/cli/summary_report.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "asterism/cli/sample_rendering.h"
#include "asterism/core/error.h"

namespace asterism::cli {
namespace {

using Json = nlohmann::ordered_json;
using data::DataSummary;
using data::Finding;

constexpr int kBarWidth = 40;
constexpr std::pair<const char*, double> kPercentiles[] = {{"p1", 0.01},  {"p10", 0.1}, {"p25", 0.25}, {"p50", 0.5},
                                                           {"p75", 0.75}, {"p90", 0.9}, {"p99", 0.99}};

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string decimal(double value, int digits) {
  char written[64];
  std::snprintf(written, sizeof written, "%.*f", digits, value);
  return written;
}

std::string percent(double part, double whole) {
  return decimal(whole == 0.0 ? 0.0 : 100.0 * part / whole, 1) + " %";
}

std::string totals_text(const DataSummary& summary) {
  std::string kinds;
  for (const auto& [kind, rows] : summary.kinds) {
    kinds += text(kinds.empty() ? "" : ", ", data::kind_name(kind), " ", grouped(rows));
  }
  return text("rows             ", grouped(summary.rows),
              summary.bad_rows() > 0 ? text(", of which ", grouped(summary.bad_rows()), " bad") : "",
              "\nkinds            ", kinds.empty() ? "none" : kinds, "\nsamples          ", grouped(summary.samples),
              "\ntokens           ", grouped(summary.tokens), "\ntrained tokens   ", grouped(summary.trained_tokens),
              " (", percent(static_cast<double>(summary.trained_tokens), static_cast<double>(summary.tokens)), ")\n");
}

std::string lengths_text(const DataSummary& summary) {
  const data::LengthStats& lengths = summary.lengths;
  std::string out = "\ntokens of a sample\n  mean " + decimal(lengths.mean(), 1);
  for (const auto& [name, share] : kPercentiles) out += text(", ", name, " ", grouped(lengths.percentile(share)));
  out += text(", longest ", grouped(lengths.percentile(1.0)), "\n");
  const auto bars = lengths.histogram();
  int64_t most = 1;
  for (const auto& bar : bars) most = std::max(most, bar.documents);
  for (const auto& bar : bars) {
    // What is there is seen, however little it is.
    const auto width = bar.documents == 0 ? 0 : std::max<int64_t>(1, bar.documents * kBarWidth / most);
    out += text("  ", padded(grouped(bar.above + 1), 9), " - ", padded(grouped(bar.up_to), 9), "  ",
                padded(grouped(bar.documents), 11), "  ", std::string(static_cast<size_t>(width), '#'), "\n");
  }
  return out;
}

std::string fits_text(const DataSummary& summary) {
  std::string out = "\nsequence_length   samples dropped   tokens dropped   packed rows   filled\n";
  for (const data::FitSummary& fit : summary.fits) {
    out += text(padded(grouped(fit.sequence_length), 15), padded(grouped(fit.dropped), 18),
                padded(grouped(fit.dropped_tokens), 17), padded(grouped(fit.rows), 14),
                padded(percent(fit.fill_ratio(), 1.0), 9), "\n");
  }
  return out;
}

std::string findings_text(const char* title, const std::map<std::string, Finding>& findings) {
  if (findings.empty()) return {};
  std::string out = text("\n", title, "\n");
  for (const auto& [name, finding] : findings) {
    out += text("  ", padded(grouped(finding.rows), 9), "  ", name, "\n             ", printable(finding.first), "\n");
  }
  return out;
}

Json findings_json(const std::map<std::string, Finding>& findings) {
  Json object = Json::object();
  for (const auto& [name, finding] : findings) object[name] = {{"rows", finding.rows}, {"first", finding.first}};
  return object;
}

}  // namespace

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3 + (number < 0); at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string summary_text(const DataSummary& summary) {
  std::string out = totals_text(summary);
  if (summary.samples > 0) {
    out += lengths_text(summary) + fits_text(summary) + "\nlongest rows\n";
    for (const data::LongRow& row : summary.longest) {
      out += text("  ", padded(grouped(row.tokens), 11), " tokens  row ", row.number, ", ", row.origin, "\n");
    }
  }
  out += findings_text("bad rows, and the first of each kind", summary.bad);
  out += findings_text("warnings, and the first row of each", summary.warnings);
  if (!summary.all_rows_compared) {
    out += text("\nOnly the first ", grouped(static_cast<int64_t>(data::kComparedRows)),
                " different rows were looked through for duplicates.\n");
  }
  return out;
}

Json summary_json(const DataSummary& summary) {
  Json kinds = Json::object(), percentiles = Json::object();
  for (const auto& [kind, rows] : summary.kinds) kinds[std::string(data::kind_name(kind))] = rows;
  for (const auto& [name, share] : kPercentiles) percentiles[name] = summary.lengths.percentile(share);
  percentiles["max"] = summary.lengths.percentile(1.0);
  percentiles["mean"] = summary.lengths.mean();
  Json histogram = Json::array(), fits = Json::array(), longest = Json::array();
  for (const auto& bar : summary.lengths.histogram()) {
    histogram.push_back({{"above", bar.above}, {"up_to", bar.up_to}, {"samples", bar.documents}});
  }
  for (const data::FitSummary& fit : summary.fits) {
    fits.push_back({{"sequence_length", fit.sequence_length},
                    {"dropped", fit.dropped},
                    {"dropped_tokens", fit.dropped_tokens},
                    {"packed_rows", fit.rows},
                    {"fill_ratio", fit.fill_ratio()}});
  }
  for (const data::LongRow& row : summary.longest) {
    longest.push_back({{"tokens", row.tokens}, {"row", row.number}, {"origin", row.origin}});
  }
  return {{"rows", summary.rows},
          {"bad_rows", summary.bad_rows()},
          {"kinds", std::move(kinds)},
          {"samples", summary.samples},
          {"tokens", summary.tokens},
          {"trained_tokens", summary.trained_tokens},
          {"sample_tokens", std::move(percentiles)},
          {"histogram", std::move(histogram)},
          {"fits", std::move(fits)},
          {"longest", std::move(longest)},
          {"bad", findings_json(summary.bad)},
          {"warnings", findings_json(summary.warnings)},
          {"all_rows_compared", summary.all_rows_compared}};
}

}  // namespace asterism::cli
