#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asterism/cli/command.h"

namespace asterism::cli {

/// What each command was asked to do. Its function does it and returns the exit code; errors are exceptions.
/// Results go to stdout, everything else through the process's log.

struct InitArgs {
  std::string config;  // config.json
  std::string out;     // new folder
  uint64_t seed = 0;
  // fp32 | bf16: type of the matrices; fp8: those that the release stores as FP8, and the experts; fp4: the experts
  std::string storage = "fp32";
  std::string layout = "hf";  // hf | native: spelling of the names
  std::string tokenizer{};    // folder whose tokenizer files are copied; none when empty
};
int run_init(const InitArgs& args);

struct ConvertArgs {
  std::string source;              // folder of a checkpoint
  std::string target;              // new folder
  std::string to;                  // hf | native
  std::string experts{}, dense{};  // fp4 (experts only) | fp8 | bf16 | fp32; as stored when empty
  std::string scales = "e8m0";     // e8m0 | f32, of FP8 that is made here
  std::string shard_size = "5GB";
  int64_t workers = 0;  // threads; 0: as many as keep the machine busy
  bool verify = false;
  bool json = false;
};
int run_convert(const ConvertArgs& args);

struct ExportArgs {
  std::string model;               // folder of the base checkpoint
  std::string adapter;             // folder of a PEFT adapter
  std::string to;                  // peft | merged
  std::string out;                 // new folder
  std::string profile{};           // peft: peft | per-expert; peft when empty
  std::string layout{};            // merged: hf | native; the base's own when empty
  std::string experts{}, dense{};  // merged, as in ConvertArgs
  std::string scales{};            // merged: e8m0 | f32; e8m0 when empty
  std::string shard_size{};        // merged; 5GB when empty
  int64_t workers = 0;
  bool no_proof = false;
  bool any_base = false;  // for a base that the adapter was not trained on
  bool json = false;
};
int run_export(const ExportArgs& args);

struct TrainArgs {
  std::string recipe;
  std::vector<std::string> overrides{};  // of --set
  bool dry_run = false;
  int64_t ranks = 0;  // processes to start on this machine; 0: this one, or those of a launcher
};
int run_train(const TrainArgs& args);

struct EvalArgs {
  std::string model;
  std::string adapter{};                 // none when empty
  std::vector<std::string> data;         // files, folders or patterns
  std::vector<std::string> overrides{};  // of --set: keys of the sections data and model
  bool json = false;
};
int run_eval(const EvalArgs& args);

struct GenerateArgs {
  std::string model;
  std::string adapter{};    // none when empty
  std::string tokenizer{};  // that of the model when empty
  std::string prompt{};     // a user's message; exactly one of prompt and messages is not empty
  std::string messages{};   // file with conversations
  std::string thinking{};   // chat | thinking; as the conversation says when empty
  int64_t max_tokens = 128;
  double temperature = 0.0;
  double top_p = 1.0;
  uint64_t seed = 0;
  bool json = false;
};
int run_generate(const GenerateArgs& args);

struct DiffArgs {
  std::string a, b;  // folder of a checkpoint or an adapter, or a .safetensors file
  double rtol = 0.0, atol = 0.0;
  bool ignore_dtype = false;
  bool json = false;
};
int run_diff(const DiffArgs& args);

struct ChatEncodeArgs {
  std::string tokenizer;
  std::string variant = "auto";
  std::string history = "auto";
  std::string file = "-";  // JSON Lines; - = stdin
};
int run_chat_encode(const ChatEncodeArgs& args);

struct ChatTokensArgs {
  std::string tokenizer;
  std::string file = "-";
};
int run_chat_tokens(const ChatTokensArgs& args);

struct ChatInspectArgs {
  std::string tokenizer;
  std::vector<std::string> files;  // each a file, folder or pattern
  int64_t row = 0;                 // show this one only, from 1; 0 = the first one and the totals
  bool tokens = false;             // show token borders
  bool plain = false;              // no colours
  bool json = false;
  std::string variant = "auto";
  std::string history = "auto";
  std::string thinking = "auto";
  int64_t workers = 0;  // threads; 0 = one a core
};
int run_chat_inspect(const ChatInspectArgs& args);

struct ChatDecodeArgs {
  std::string variant = "auto";
  std::string tokenizer{};  // what `auto` goes by; may be empty
  bool recover = false;
  std::string file = "-";
};
int run_chat_decode(const ChatDecodeArgs& args);

/// The descriptions of the commands, ready for run_command_line.
Command init_command();
Command convert_command();
Command export_command();
Command train_command();
Command eval_command();
Command generate_command();
Command diff_command();
Command chat_command();

}  // namespace asterism::cli
