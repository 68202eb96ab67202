#include "asterism/cli/session.h"

#include <filesystem>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/data/chat_markup.h"
#include "asterism/data/variant_detection.h"
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

}  // namespace

model::Model load_model(const std::string& folder, train::Storage storage, const std::string& adapter) {
  model::Model model;
  model.config = model::read_config(fs::path(folder) / "config.json");
  checkpoint::ReadOptions options;
  if (storage == train::Storage::kFp32) options.matrix_dtype = at::kFloat;
  if (storage == train::Storage::kBf16) options.matrix_dtype = at::kBFloat16;
  checkpoint::LoadedWeights loaded = checkpoint::read_weights(folder, model.config, options);
  for (const std::string& note : loaded.notes) log_info(note);
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

data::ChatVariant variant_named(const std::string& name, const fs::path& folder, const data::Tokenizer* tokenizer) {
  if (name != "auto") {
    const data::ChatVariant variant = data::chat_variant(name);
    if (variant == data::ChatVariant::V4_1 && tokenizer != nullptr && !tokenizer->token_id(data::kSystemHeader)) {
      log_warning("chat encoding v4.1: the tokenizer has no token ", data::kSystemHeader, ", which is then plain text");
    }
    return variant;
  }
  const data::VariantChoice choice = data::detect_variant(folder, tokenizer);
  log_info("chat encoding ", data::variant_name(choice.variant), ": ", choice.reason);
  return choice.variant;
}

data::RowOptions row_options(const train::DataSection& section, std::shared_ptr<const data::Tokenizer> tokenizer,
                             int64_t vocab_size, const fs::path& model_folder) {
  data::RowOptions options;
  options.chat.variant = variant_named(section.variant, model_folder, tokenizer.get());
  options.chat.reject_unframeable = section.reject_unframeable;
  options.chat.special_in_content = data::special_in_content(section.special_in_content);
  options.chat.drop_thinking = section.drop_thinking;
  options.chat.reasoning_effort = data::reasoning_effort(section.reasoning_effort);
  options.loss.history = data::history(section.history);
  options.thinking = thinking(section.thinking);
  options.bad_rows = section.bad_rows == "skip" ? data::BadRows::Skip : data::BadRows::Error;
  options.vocab_size = vocab_size;
  if (tokenizer) options.tokenize = data::tokenize_with(std::move(tokenizer));
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
