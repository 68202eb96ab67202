#include <memory>

#include "asterism/cli/commands.h"

namespace asterism::cli {

namespace {

// A fresh checkout has no model: the examples make one first.
const std::string kMakeTiny =
    "build/asterism init --config recipes/quickstart/config.json --out runs/tiny --tokenizer build/tokenizer\n  ";

}  // namespace

Command train_command() {
  const auto args = std::make_shared<TrainArgs>();
  return {
      .name = "train",
      .summary = "Run a recipe: full or LoRA fine-tuning; goes on where an interrupted run stopped",
      .example = kMakeTiny + "build/asterism train recipes/quickstart/recipe.yaml --set model.path=runs/tiny --dry-run",
      .options =
          {
              {.name = "RECIPE", .target = &args->recipe, .help = "YAML file (docs/recipe.md)", .required = true},
              {.name = "--set",
               .target = &args->overrides,
               .help = "section.key=value: overrides a key of the recipe; may be repeated"},
              {.name = "--ranks",
               .target = &args->ranks,
               .help = "Processes to start on this machine (docs/parallelism.md); without it torchrun, Slurm and "
                       "mpirun are recognised"},
              {.name = "--dry-run",
               .target = &args->dry_run,
               .help = "Check recipe, model and data and say what would run, without training"},
          },
      .run = [args] { return run_train(*args); },
  };
}

Command eval_command() {
  const auto args = std::make_shared<EvalArgs>();
  return {
      .name = "eval",
      .summary = "Loss and accuracy of a checkpoint, with or without an adapter, on data",
      .example = kMakeTiny + "build/asterism eval --model runs/tiny --data recipes/quickstart/held_out.jsonl",
      .options =
          {
              {.name = "--model", .target = &args->model, .help = "Folder of the checkpoint", .required = true},
              {.name = "--adapter", .target = &args->adapter, .help = "Folder of a PEFT adapter"},
              {.name = "--data",
               .target = &args->data,
               .help = "File, folder or pattern; may be repeated",
               .required = true},
              {.name = "--set",
               .target = &args->overrides,
               .help = "data.key=value or model.key=value as in a recipe; may be repeated"},
              {.name = "--json", .target = &args->json, .help = "Print one JSON object"},
          },
      .run = [args] { return run_eval(*args); },
  };
}

Command generate_command() {
  const auto args = std::make_shared<GenerateArgs>();
  return {
      .name = "generate",
      .summary = "Answer a message or conversations, to look at what was trained",
      .example = kMakeTiny + "build/asterism generate --model runs/tiny --prompt Hello --max-tokens 8",
      .options =
          {
              {.name = "--model", .target = &args->model, .help = "Folder of the checkpoint", .required = true},
              {.name = "--adapter", .target = &args->adapter, .help = "Folder of a PEFT adapter"},
              {.name = "--tokenizer", .target = &args->tokenizer, .help = "tokenizer.json or its folder (--model)"},
              {.name = "--prompt", .target = &args->prompt, .help = "Message to answer"},
              {.name = "--messages", .target = &args->messages, .help = "File with conversations to answer"},
              {.name = "--thinking",
               .target = &args->thinking,
               .help = "Answer without or with reasoning (as the conversation says)",
               .choices = {"chat", "thinking"}},
              {.name = "--max-tokens",
               .target = &args->max_tokens,
               .help = "Most tokens to generate (128)",
               .at_least = 1.0},
              {.name = "--temperature", .target = &args->temperature, .help = "0 = greedy (0)", .at_least = 0.0},
              {.name = "--top-p",
               .target = &args->top_p,
               .help = "Draw from the fewest tokens with this much probability (1)",
               .at_least = 0.0,
               .at_most = 1.0},
              {.name = "--seed", .target = &args->seed, .help = "Names the random numbers (0)"},
              {.name = "--json",
               .target = &args->json,
               .help = "Print one JSON object with text, ids, log-probabilities and message"},
          },
      .run = [args] { return run_generate(*args); },
  };
}

}  // namespace asterism::cli
