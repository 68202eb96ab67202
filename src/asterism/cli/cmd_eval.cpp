#include <cstdio>
#include <iostream>

#include "asterism/cli/commands.h"
#include "asterism/cli/recipe_file.h"
#include "asterism/cli/session.h"
#include "asterism/core/error.h"
#include "asterism/train/loop.h"

namespace asterism::cli {

int run_eval(const EvalArgs& args) {
  // The data section's defaults and --set overrides follow the recipe's rules.
  const train::Recipe recipe = recipe_for_evaluation(args.model, args.data, args.overrides);
  const model::Model model = load_model(args.model, recipe.model.storage, args.adapter);
  const auto tokenizer = load_tokenizer(recipe.model.tokenizer, args.model, model.config.vocab_size);
  const data::RowOptions options = row_options(recipe.data, tokenizer, model.config.vocab_size, args.model);
  const auto data = load_data(plain_sources(args.data), recipe, options, "data");
  const train::Evaluation evaluation = train::evaluate(model, *data, compute_type(recipe.model.compute),
                                                       recipe.data.sequence_length, recipe.data.workers);
  if (args.json) {
    nlohmann::ordered_json out;
    out["loss"] = evaluation.loss();
    out["perplexity"] = evaluation.perplexity();
    out["tokens"] = evaluation.tokens;
    out["rows"] = evaluation.rows;
    out["accuracy"] = evaluation.accuracy();
    std::cout << out.dump() << "\n";
    return 0;
  }
  std::printf("loss        %.6f (mean over trained tokens, natural logarithm)\n", evaluation.loss());
  std::printf("perplexity  %.4f\n", evaluation.perplexity());
  std::printf("accuracy    %.2f %% of trained tokens\n", 100.0 * evaluation.accuracy());
  std::printf("tokens      %lld trained, in %lld rows\n", static_cast<long long>(evaluation.tokens),
              static_cast<long long>(evaluation.rows));
  return 0;
}

}  // namespace asterism::cli
