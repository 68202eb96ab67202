#include "asterism/cli/commands.h"

#include <memory>

namespace asterism::cli {

Command init_command() {
  const auto args = std::make_shared<InitArgs>();
  return {
      .name = "init",
      .summary = "Make a randomly initialised checkpoint from a config.json",
      .example =
          "build/asterism init --config recipes/quickstart/config.json --out runs/tiny --tokenizer build/tokenizer",
      .options =
          {
              {.name = "--config", .target = &args->config, .help = "config.json of the model", .required = true},
              {.name = "--out", .target = &args->out, .help = "Folder to make", .required = true},
              {.name = "--seed", .target = &args->seed, .help = "Names the random numbers (0)"},
              {.name = "--storage",
               .target = &args->storage,
               .help = "Type of the matrices (fp32)",
               .choices = {"fp32", "bf16"}},
              {.name = "--layout",
               .target = &args->layout,
               .help = "Names of the tensors: Hugging Face's or DeepSeek's own (hf)",
               .choices = {"hf", "native"}},
              {.name = "--tokenizer", .target = &args->tokenizer, .help = "Folder whose tokenizer files are copied"},
          },
      .run = [args] { return run_init(*args); },
  };
}

Command diff_command() {
  const auto args = std::make_shared<DiffArgs>();
  return {
      .name = "diff",
      .summary = "Compare two checkpoints or adapters tensor by tensor; exit code 3 when they differ",
      .example = "build/asterism diff tests/golden/hf/odd_dims tests/golden/hf/odd_dims/hf_names",
      .options =
          {
              {.name = "A", .target = &args->a, .help = "Folder or .safetensors file", .required = true},
              {.name = "B", .target = &args->b, .help = "Folder or .safetensors file", .required = true},
              {.name = "--rtol",
               .target = &args->rtol,
               .help = "|a - b| may be this share of |b|, plus --atol (0)",
               .at_least = 0.0},
              {.name = "--atol", .target = &args->atol, .help = "|a - b| may be this (0)", .at_least = 0.0},
              {.name = "--ignore-dtype", .target = &args->ignore_dtype, .help = "Compare values of different types"},
              {.name = "--json", .target = &args->json, .help = "Print one JSON object"},
          },
      .run = [args] { return run_diff(*args); },
  };
}

static Command chat_decode_command() {
  const auto args = std::make_shared<ChatDecodeArgs>();
  return {
      .name = "decode",
      .summary = "Completions, rows {\"text\", \"thinking_mode\"}, to assistant messages",
      .example = "echo '{\"text\": \"Hi!\", \"thinking_mode\": \"chat\"}' | build/asterism chat decode --recover",
      .options =
          {
              {.name = "FILE", .target = &args->file, .help = "JSON Lines; - = stdin (-)"},
              {.name = "--variant",
               .target = &args->variant,
               .help = "Version of the encoding (v4-0731)",
               .choices = {"v4-preview", "v4-0731", "v4.1"}},
              {.name = "--recover",
               .target = &args->recover,
               .help = "A message of any text, with a list of what was wrong, in place of errors"},
          },
      .run = [args] { return run_chat_decode(*args); },
  };
}

Command chat_command() {
  const auto encode = std::make_shared<ChatEncodeArgs>();
  const auto tokens = std::make_shared<ChatTokensArgs>();
  const std::string file_help = "JSON Lines; - = stdin (-)";
  const std::string tokenizer_help = "tokenizer.json or its folder";
  Command encode_command = {
      .name = "encode",
      .summary = "Chat rows to text, token ids and weights, an object per row",
      .example = "build/asterism chat encode --tokenizer build/tokenizer recipes/quickstart/train.jsonl",
      .options =
          {
              {.name = "FILE", .target = &encode->file, .help = file_help},
              {.name = "--tokenizer", .target = &encode->tokenizer, .help = tokenizer_help, .required = true},
              {.name = "--variant",
               .target = &encode->variant,
               .help = "Version of the encoding (auto: as the files beside the tokenizer say)",
               .choices = {"auto", "v4-preview", "v4-0731", "v4-flash-vision", "v4.1"}},
              {.name = "--history",
               .target = &encode->history,
               .help = "Which assistant turns are trained (auto)",
               .choices = {"auto", "all", "last_turn", "split"}},
          },
      .run = [encode] { return run_chat_encode(*encode); },
  };
  Command tokens_command = {
      .name = "tokens",
      .summary = "Rows {\"text\"} to rows {\"ids\"}",
      .example = "echo '{\"text\": \"Hello\"}' | build/asterism chat tokens --tokenizer build/tokenizer",
      .options =
          {
              {.name = "FILE", .target = &tokens->file, .help = file_help},
              {.name = "--tokenizer", .target = &tokens->tokenizer, .help = tokenizer_help, .required = true},
          },
      .run = [tokens] { return run_chat_tokens(*tokens); },
  };
  Command chat = {.name = "chat", .summary = "Look at conversations as the model sees them"};
  chat.children = {std::move(encode_command), chat_decode_command(), std::move(tokens_command)};
  return chat;
}

}  // namespace asterism::cli
