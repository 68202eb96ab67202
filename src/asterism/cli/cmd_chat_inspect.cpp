#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/sample_rendering.h"
#include "asterism/cli/session.h"
#include "asterism/cli/summary_report.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/core/progress.h"
#include "asterism/data/data_files.h"
#include "asterism/data/inspection.h"
#include "asterism/data/source_summary.h"
#include "asterism/data/tokenizer.h"

namespace asterism::cli {

namespace {

using Json = nlohmann::ordered_json;
using Files = std::vector<std::filesystem::path>;

Files files_of(const std::vector<std::string>& sources) {
  Files files;
  for (const std::string& source : sources) {
    const Files more = data::data_files(source);
    log_info(data::describe_source(source, more));
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

data::RowOptions row_options(const ChatInspectArgs& args, std::shared_ptr<const data::Tokenizer> tokenizer) {
  data::RowOptions options;
  options.chat.variant = variant_named(args.variant, args.tokenizer, tokenizer.get());
  options.loss.history = data::history(args.history);
  if (args.thinking == "chat") options.thinking = data::Thinking::Chat;
  if (args.thinking == "thinking") options.thinking = data::Thinking::Thinking;
  options.vocab_size = tokenizer->vocab_size();
  options.tokenize = data::tokenize_with(std::move(tokenizer));
  return options;
}

bool color_is_wanted() {
  return ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
}

std::string row_text(const data::InspectedRow& row, int64_t number, const data::Tokenizer& tokenizer,
                     const RenderStyle& style) {
  std::string out;
  for (size_t i = 0; i < row.samples.size(); ++i) {
    const data::Sample& sample = row.samples[i];
    out += text("row ", number, ", ", row.origin, ", ", data::kind_name(row.kind),
                row.samples.size() > 1 ? text(", sample ", i + 1, " of ", row.samples.size()) : "", ": ",
                grouped(sample.size()), " tokens, ", grouped(sample.trained_tokens()), " trained\n",
                render_sample(sample, tokenizer, style), "\n\n");
  }
  for (const data::RowWarning& warning : row.warnings) {
    out += text("warning: ", warning.code, ": ", printable(warning.explanation), "\n");
  }
  return out;
}

Json row_json(const data::InspectedRow& row, int64_t number, const data::Tokenizer& tokenizer) {
  Json samples = Json::array(), warnings = Json::array();
  for (const data::Sample& sample : row.samples) {
    samples.push_back({{"tokens", sample.size()},
                       {"trained_tokens", sample.trained_tokens()},
                       {"text", tokenizer.decode(sample.ids)},
                       {"ids", sample.ids},
                       {"weights", sample.weights}});
  }
  for (const data::RowWarning& warning : row.warnings) {
    warnings.push_back({{"code", warning.code}, {"message", warning.explanation}});
  }
  return {{"row", number},
          {"origin", row.origin},
          {"kind", data::kind_name(row.kind)},
          {"samples", std::move(samples)},
          {"warnings", std::move(warnings)}};
}

data::DataSummary summary_of(const Files& files, data::RowOptions rows, int64_t workers) {
  Progress progress({.label = "inspect", .unit = "rows"});
  data::DataSummary summary = data::inspect_data(
      files, {.rows = std::move(rows), .workers = workers, .progress = [&](int64_t count) { progress.update(count); }});
  progress.finish();
  return summary;
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) run_error("cannot write the result to standard output");
}

/// The first row, as far as it is a good one: a bad one is told of with the totals.
void print_first_row(const Files& files, const data::RowOptions& rows, const data::Tokenizer& tokenizer,
                     const RenderStyle& style) {
  std::string first;
  try {
    first = row_text(data::inspect_row(files, 1, rows), 1, tokenizer, style) + "\n";
  } catch (const InputError& error) {
    log_warning(error.what());
    return;
  }
  print(first);
}

}  // namespace

int run_chat_inspect(const ChatInspectArgs& args) {
  const auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::load(args.tokenizer));
  const Files files = files_of(args.files);
  const data::RowOptions rows = row_options(args, tokenizer);
  const RenderStyle style{.color = !args.plain && color_is_wanted(), .token_borders = args.tokens};
  if (args.row > 0) {
    const data::InspectedRow row = data::inspect_row(files, args.row, rows);
    print(args.json ? row_json(row, args.row, *tokenizer).dump() + "\n" : row_text(row, args.row, *tokenizer, style));
    return kDone;
  }
  if (!args.json) print_first_row(files, rows, *tokenizer, style);
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const data::DataSummary summary = summary_of(files, rows, args.workers > 0 ? args.workers : cores);
  print(args.json ? summary_json(summary).dump() + "\n" : summary_text(summary));
  return kDone;
}

}  // namespace asterism::cli
