#include "asterism/cli/session.h"

#include <filesystem>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/ops/matmul.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

data::Overlong overlong(const std::string& name) {
  if (name == "drop") return data::Overlong::Drop;
  return name == "truncate" ? data::Overlong::Truncate : data::Overlong::Error;
}

data::Thinking thinking(const std::string& name) {
  if (name == "chat") return data::Thinking::Chat;
  return name == "thinking" ? data::Thinking::Thinking : data::Thinking::Auto;
}

void report_data(const char* what, const data::DataSetReport& report) {
  log_info(what, ": ", report.samples, " samples, ", report.tokens, " tokens, ", report.trained_tokens,
           " of them trained, in ", report.rows, " rows filled to ", static_cast<int>(100.0 * report.fill_ratio + 0.5),
           " %");
  if (report.fit.without_targets > 0) {
    log_warning(what, ": left out ", report.fit.without_targets, " samples without a token to train");
  }
  if (report.fit.dropped + report.fit.truncated > 0) {
    log_warning(what, ": ", report.fit.dropped, " samples dropped and ", report.fit.truncated,
                " cut because they are longer than data.sequence_length; ", report.fit.trained_tokens_lost,
                " trained tokens lost");
  }
  if (report.read.bad_rows > 0) {
    log_warning(what, ": skipped ", report.read.bad_rows, " of ", report.read.rows, " rows:");
    for (const auto& [category, count] : report.read.bad_by_category) log_warning("  ", category, ": ", count);
    for (const std::string& message : report.read.first_bad) log_warning("  ", message);
  }
}

checkpoint::ReadOptions read_options(train::Storage storage) {
  using checkpoint::Form;
  switch (storage) {
    case train::Storage::kFp32:
      return {.matrix_dtype = at::kFloat};
    case train::Storage::kBf16:
      return {.matrix_dtype = at::kBFloat16};
    case train::Storage::kFp8:
      return {.packed = true, .storage = {.experts = Form::fp8(), .dense = Form::fp8()}};
    case train::Storage::kFp4:
      return {.packed = true, .storage = {.experts = Form::fp4(), .dense = Form::fp8()}};
    default:
      return {.packed = true};
  }
}

void warn_of_rounding(const checkpoint::RecodingLoss& loss, train::Storage storage) {
  if (loss.changed == 0) return;
  const char* name = storage == train::Storage::kFp4 ? "fp4" : "fp8";
  log_warning("model.storage: ", name, " changed ", loss.changed, " of ", loss.values,
              " values of the checkpoint: ", loss.vanished, " became 0, the others by up to ", loss.largest_relative,
              " of their size; model.storage: auto keeps them as they are");
}

}  // namespace

model::Model load_model(const std::string& folder, train::Storage storage, const std::string& adapter) {
  model::Model model;
  model.config = model::read_config(fs::path(folder) / "config.json");
  checkpoint::LoadedWeights loaded = checkpoint::read_weights(folder, model.config, read_options(storage));
  for (const std::string& note : loaded.notes) log_info(note);
  warn_of_rounding(loaded.rounded, storage);
  model.weights = std::move(loaded.weights);
  if (!adapter.empty()) checkpoint::load_adapter(adapter, model.config, model.weights);
  return model;
}

at::ScalarType compute_type(train::Compute compute) {
  if (compute == train::Compute::kBf16) return at::kBFloat16;
  if (compute == train::Compute::kFp32) return at::kFloat;
  return ops::has_native_bf16() ? at::kBFloat16 : at::kFloat;
}

std::shared_ptr<const data::Tokenizer> load_tokenizer(const std::string& path, const std::string& model_folder,
                                                      int64_t vocab_size) {
  const fs::path source = path.empty() ? fs::path(model_folder) : fs::path(path);
  if (path.empty() && !fs::exists(source / "tokenizer.json")) return nullptr;
  auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::load(source));
  if (tokenizer->vocab_size() > vocab_size) {
    input_error(source.string(), ": the tokenizer has ids up to ", tokenizer->vocab_size() - 1,
                ", the model's vocabulary has ", vocab_size,
                " entries. Use the tokenizer that belongs to the model (model.tokenizer)");
  }
  return tokenizer;
}

void copy_tokenizer(const std::string& path, const std::string& model_folder, const fs::path& target) {
  const fs::path source = path.empty() ? fs::path(model_folder) : fs::path(path);
  // A path may be the tokenizer's file itself, whatever its name.
  const fs::path folder = fs::is_directory(source) ? source : source.parent_path();
  const fs::path file = fs::is_directory(source) ? source / "tokenizer.json" : source;
  const std::pair<fs::path, const char*> copies[] = {{file, "tokenizer.json"},
                                                     {folder / "tokenizer_config.json", "tokenizer_config.json"}};
  for (const auto& [from, name] : copies) {
    std::error_code failure;
    if (!fs::exists(from)) continue;
    fs::copy_file(from, target / name, failure);
    if (failure) run_error((target / name).string(), ": cannot copy ", from.string(), ": ", failure.message());
  }
}

data::RowOptions row_options(const train::DataSection& section, std::shared_ptr<const data::Tokenizer> tokenizer,
                             int64_t vocab_size) {
  data::RowOptions options;
  const std::string variant = section.variant == "auto" ? "v4-0731" : section.variant;
  options.chat.variant = data::chat_variant(variant);
  options.chat.drop_thinking = section.drop_thinking;
  options.chat.reasoning_effort = data::reasoning_effort(section.reasoning_effort);
  options.loss.history = data::history(section.history);
  options.thinking = thinking(section.thinking);
  options.bad_rows = section.bad_rows == "skip" ? data::BadRows::Skip : data::BadRows::Error;
  options.vocab_size = vocab_size;
  if (tokenizer) {
    options.tokenize = [tokenizer](std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
      const data::Encoding encoding = tokenizer->encode_with_ranges(text);
      ids = encoding.ids;
      ends.clear();
      for (const data::ByteRange& range : encoding.ranges) ends.push_back(range.end);
    };
  }
  return options;
}

std::unique_ptr<data::DataSet> load_data(const std::vector<std::string>& sources, const train::Recipe& recipe,
                                         const data::RowOptions& options, const char* what) {
  data::DataSetOptions set;
  set.packing.sequence_length = recipe.data.sequence_length;
  set.packing.packing = recipe.data.packing;
  set.overlong = overlong(recipe.data.overlong);
  set.shuffle = recipe.data.shuffle;
  set.seed = recipe.seed;
  set.batch = recipe.train.batch;
  auto data = std::make_unique<data::DataSet>(sources, options, set);
  report_data(what, data->report());
  return data;
}

}  // namespace asterism::cli
