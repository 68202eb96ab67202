#include "asterism/cli/commands.h"

#include <memory>

namespace asterism::cli {

namespace {

constexpr const char* kTokenizerHelp = "tokenizer.json or its folder";
constexpr const char* kVariantHelp = "Version of the encoding (auto: as the files beside the tokenizer say)";
const std::vector<std::string> kVariants = {"auto", "v4-preview", "v4-0731", "v4-flash-vision", "v4.1"};

}  // namespace

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
               .help = "Type of the matrices; fp8 and fp4 as released: dense ones FP8, experts FP8 or FP4 (fp32)",
               .choices = {"fp32", "bf16", "fp8", "fp4"}},
              {.name = "--layout",
               .target = &args->layout,
               .help = "Names of the tensors: Hugging Face's or DeepSeek's own (hf)",
               .choices = {"hf", "native"}},
              {.name = "--tokenizer", .target = &args->tokenizer, .help = "Folder whose tokenizer files are copied"},
          },
      .run = [args] { return run_init(*args); },
  };
}

namespace {

/// The options about what is written, of convert and export.
template <typename Args>
void add_storage_options(Command& command, Args& args) {
  const Option options[] = {
      {.name = "--experts",
       .target = &args.experts,
       .help = "Storage of the routed experts (as stored)",
       .choices = {"fp4", "fp8", "bf16", "fp32"}},
      {.name = "--dense",
       .target = &args.dense,
       .help = "Storage of the other matrices; fp8: those that the release stores so, the rest bf16 (as stored)",
       .choices = {"fp8", "bf16", "fp32"}},
      {.name = "--scales",
       .target = &args.scales,
       .help = "Scales of FP8 that is made: powers of two or full precision (e8m0)",
       .choices = {"e8m0", "f32"}},
      {.name = "--shard-size", .target = &args.shard_size, .help = "Largest file, such as 500MB (5GB)"},
      {.name = "--workers",
       .target = &args.workers,
       .help = "Threads that read, convert and write (one more than cores)",
       .at_least = 0,
       .at_most = 256},
  };
  command.options.insert(command.options.end(), std::begin(options), std::end(options));
}

}  // namespace

Command convert_command() {
  const auto args = std::make_shared<ConvertArgs>();
  Command convert = {
      .name = "convert",
      .summary = "Write a checkpoint in another layout or storage, in bounded memory; continues after an interruption",
      .example = "build/asterism convert tests/golden/hf/odd_dims runs/odd_dims --to native --dense fp8 --experts fp8",
      .options =
          {
              {.name = "SRC", .target = &args->source, .help = "Folder of a checkpoint", .required = true},
              {.name = "DST", .target = &args->target, .help = "Folder to make", .required = true},
              {.name = "--to",
               .target = &args->to,
               .help = "Names of the tensors: Hugging Face's modules (packed experts) or DeepSeek's own",
               .required = true,
               .choices = {"hf", "native"}},
              {.name = "--verify", .target = &args->verify, .help = "Read everything back and compare checksums"},
              {.name = "--json", .target = &args->json, .help = "Print one JSON object"},
          },
      .run = [args] { return run_convert(*args); },
  };
  add_storage_options(convert, *args);
  return convert;
}

Command export_command() {
  const auto args = std::make_shared<ExportArgs>();
  Command command = {
      .name = "export",
      .summary = "Write an adapter for other programs, or merge it into its model; proved by loading the result again",
      .example =
          "build/asterism export --model tests/golden/hf/all_paths --adapter tests/golden/hf/all_paths/lora "
          "--to merged --out runs/merged",
      .options =
          {
              {.name = "--model", .target = &args->model, .help = "Folder of the base checkpoint", .required = true},
              {.name = "--adapter", .target = &args->adapter, .help = "Folder of a PEFT adapter", .required = true},
              {.name = "--to",
               .target = &args->to,
               .help = "An adapter again, or a checkpoint with the adapter in its weights",
               .required = true,
               .choices = {"peft", "merged"}},
              {.name = "--out", .target = &args->out, .help = "Folder to make", .required = true},
              {.name = "--profile",
               .target = &args->profile,
               .help = "peft: experts as PEFT lays them out, or a pair for each matrix of each expert (peft)",
               .choices = {"peft", "per-expert"}},
              {.name = "--layout",
               .target = &args->layout,
               .help = "merged: Hugging Face's modules (packed experts) or DeepSeek's own names (the model's own)",
               .choices = {"hf", "native"}},
              {.name = "--no-proof",
               .target = &args->no_proof,
               .help = "Do not load the result and compare logits; export.json says so"},
              {.name = "--any-base",
               .target = &args->any_base,
               .help = "Take a model whose weights are not those that the adapter was trained on"},
              {.name = "--json", .target = &args->json, .help = "Print one JSON object"},
          },
      .run = [args] { return run_export(*args); },
  };
  add_storage_options(command, *args);
  return command;
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

namespace {

Command chat_inspect_command() {
  const auto args = std::make_shared<ChatInspectArgs>();
  return {
      .name = "inspect",
      .summary = "What is trained of a data set: a row with its trained tokens marked, totals, problems, warnings",
      .example = "build/asterism chat inspect --tokenizer build/tokenizer recipes/quickstart/train.jsonl",
      .options =
          {
              {.name = "FILE", .target = &args->files, .help = "Data files, folders or patterns", .required = true},
              {.name = "--tokenizer", .target = &args->tokenizer, .help = kTokenizerHelp, .required = true},
              {.name = "--row",
               .target = &args->row,
               .help = "Show this row, from 1 over all files, and no totals",
               .at_least = 1},
              {.name = "--tokens", .target = &args->tokens, .help = "Show the borders of tokens"},
              {.name = "--plain", .target = &args->plain, .help = "Mark trained tokens by brackets, not by colour"},
              {.name = "--json", .target = &args->json, .help = "Print one JSON value"},
              {.name = "--variant", .target = &args->variant, .help = kVariantHelp, .choices = kVariants},
              {.name = "--history",
               .target = &args->history,
               .help = "Which assistant turns are trained (auto)",
               .choices = {"auto", "all", "last_turn", "split"}},
              {.name = "--thinking",
               .target = &args->thinking,
               .help = "Mode of all conversations (auto: the row's own)",
               .choices = {"auto", "chat", "thinking"}},
              {.name = "--workers", .target = &args->workers, .help = "Threads (one a core)", .at_least = 1},
          },
      .run = [args] { return run_chat_inspect(*args); },
  };
}

Command chat_decode_command() {
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
               .help = "Version of the encoding; auto = as the folder of --tokenizer says, v4-0731 without it (auto)",
               .choices = kVariants},
              {.name = "--tokenizer", .target = &args->tokenizer, .help = "Folder of the model, for --variant auto"},
              {.name = "--recover",
               .target = &args->recover,
               .help = "A message of any text, with a list of what was wrong, in place of errors"},
          },
      .run = [args] { return run_chat_decode(*args); },
  };
}

}  // namespace

Command chat_command() {
  const auto encode = std::make_shared<ChatEncodeArgs>();
  const auto tokens = std::make_shared<ChatTokensArgs>();
  const std::string file_help = "JSON Lines; - = stdin (-)";
  Command encode_command = {
      .name = "encode",
      .summary = "Chat rows to text, token ids and weights, an object per row",
      .example = "build/asterism chat encode --tokenizer build/tokenizer recipes/quickstart/train.jsonl",
      .options =
          {
              {.name = "FILE", .target = &encode->file, .help = file_help},
              {.name = "--tokenizer", .target = &encode->tokenizer, .help = kTokenizerHelp, .required = true},
              {.name = "--variant", .target = &encode->variant, .help = kVariantHelp, .choices = kVariants},
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
              {.name = "--tokenizer", .target = &tokens->tokenizer, .help = kTokenizerHelp, .required = true},
          },
      .run = [tokens] { return run_chat_tokens(*tokens); },
  };
  Command chat = {.name = "chat", .summary = "Look at conversations as the model sees them"};
  chat.children = {std::move(encode_command), chat_decode_command(), std::move(tokens_command), chat_inspect_command()};
  return chat;
}

}  // namespace asterism::cli
