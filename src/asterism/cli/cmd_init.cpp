#include <filesystem>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/storage.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/session.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"
#include "asterism/data/tokenizer.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

/// The tokenizer file of the folder, after a look whether it belongs to the model.
void check_tokenizer(const fs::path& folder, const model::Config& config) {
  const int64_t tokens = data::Tokenizer::load(folder / "tokenizer.json").vocab_size();
  if (tokens > config.vocab_size) {
    input_error(folder.string(), ": the tokenizer has ", tokens, " tokens, the model only ", config.vocab_size,
                " (vocab_size in config.json); use a tokenizer that belongs to the model");
  }
}

int64_t num_parameters(const model::Config& config) {
  int64_t total = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    if (spec.role != model::TensorRole::kTable) total += c10::multiply_integers(spec.shape);
  }
  return total;
}

/// As released, experts FP4 stand beside dense matrices in FP8, and coded matrices beside norms in BF16.
checkpoint::Storage storage_of(const std::string& word) {
  const checkpoint::Form experts = checkpoint::form_of_word(word);
  checkpoint::Storage storage = {.experts = experts, .dense = experts};
  if (!experts.is_coded()) return storage;
  storage.dense = checkpoint::Form::fp8();
  storage.norms = at::kBFloat16;
  return storage;
}

}  // namespace

int run_init(const InitArgs& args) {
  const model::Config config = model::read_config(args.config);
  if (!args.tokenizer.empty()) check_tokenizer(args.tokenizer, config);
  AtomicFolder folder(args.out);
  log_info("initialising ", num_parameters(config), " parameters with seed ", args.seed);
  const auto spelling = args.layout == "native" ? checkpoint::Spelling::kNative : checkpoint::Spelling::kSavePretrained;
  // Written into the staging folder, so that weights and tokenizer appear together.
  checkpoint::write_initial_checkpoint(folder.staging(), config, args.seed,
                                       {.spelling = spelling, .storage = storage_of(args.storage), .replace = true});
  if (!args.tokenizer.empty()) copy_tokenizer(args.tokenizer, "", folder.staging());
  folder.publish();
  log_info("wrote ", args.out);
  for (const std::string& warning : checkpoint::config_warnings(config, spelling)) log_warning(warning);
  return kDone;
}

}  // namespace asterism::cli
