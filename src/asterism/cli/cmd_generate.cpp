#include <algorithm>
#include <iostream>
#include <sstream>

#include "asterism/cli/commands.h"
#include "asterism/cli/session.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/data/chat_decoder.h"
#include "asterism/data/chat_markup.h"
#include "asterism/data/chat_row.h"
#include "asterism/data/python_json.h"
#include "asterism/train/generate.h"

namespace asterism::cli {

namespace {

using Json = nlohmann::ordered_json;

const std::string kReplacement = "\uFFFD";

struct Prompt {
  std::string text;
  data::DecodeOptions decode;  // how to read what the model writes behind it
};

// Whether the model goes on with its reasoning behind this prompt.
bool ends_in_reasoning(const std::string& prompt) {
  const size_t opened = prompt.rfind(data::kThinkOpen), closed = prompt.rfind(data::kThinkClose);
  return opened != std::string::npos && (closed == std::string::npos || opened > closed);
}

// Whether the model may answer with calls of tools.
bool offers_tools(const data::Conversation& conversation, const data::ChatOptions& options) {
  if (options.omit_tools) return false;
  if (data::is_truthy(conversation.tools)) return true;
  if (!conversation.messages.is_array()) return false;
  const auto& messages = conversation.messages.as_array();
  return std::any_of(messages.begin(), messages.end(),
                     [](const data::JsonValue& message) { return data::is_truthy(message.get("tools")); });
}

// The conversation of `row`: a chat row, or its list of messages alone.
Prompt encode_prompt(data::JsonValue row, const data::ChatDefaults& defaults, const std::string& where) {
  if (row.is_array()) row = data::JsonValue::object({{"messages", std::move(row)}});
  if (!row.is_object()) input_error(where, ": expected a list of messages or an object with \"messages\"");
  try {
    const data::ChatRow chat = data::read_chat_row(std::move(row), defaults);
    Prompt prompt{data::encode_chat(chat.conversation, chat.chat).text, {}};
    prompt.decode.mode = data::DecodeMode::Recover;
    prompt.decode.variant = chat.chat.variant;
    prompt.decode.tools_declared = offers_tools(chat.conversation, chat.chat);
    const bool thinks = ends_in_reasoning(prompt.text);
    prompt.decode.thinking_mode = thinks ? data::ThinkingMode::Thinking : data::ThinkingMode::Chat;
    return prompt;
  } catch (const data::ChatError& error) {
    input_error(where, ": ", error.explanation());
  }
}

data::ChatDefaults prompt_defaults(const GenerateArgs& args, const data::Tokenizer& tokenizer) {
  data::ChatDefaults defaults;
  defaults.chat.variant = variant_named("auto", args.model, &tokenizer);
  if (args.thinking.empty()) return defaults;
  const bool thinks = data::thinking_mode(args.thinking) == data::ThinkingMode::Thinking;
  defaults.thinking = thinks ? data::Thinking::Thinking : data::Thinking::Chat;
  return defaults;
}

// A JSON file with one conversation, or JSON Lines with one a line.
std::vector<Prompt> read_prompts(const GenerateArgs& args, const data::ChatDefaults& defaults) {
  if (!args.prompt.empty()) {
    data::JsonValue message = data::JsonValue::object({{"role", "user"}, {"content", args.prompt}});
    return {encode_prompt(data::JsonValue::Array{std::move(message)}, defaults, "--prompt")};
  }
  const std::string content = read_text(args.messages);
  if (data::JsonValue whole; !data::parse_json(content, whole)) {
    return {encode_prompt(std::move(whole), defaults, args.messages)};
  }
  std::vector<Prompt> prompts;
  std::istringstream lines(content);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = text(args.messages, ":", number);
    data::JsonValue row;
    if (data::parse_json(line, row)) input_error(where, ": not valid JSON");
    prompts.push_back(encode_prompt(std::move(row), defaults, where));
  }
  if (prompts.empty()) input_error(args.messages, ": holds no conversation");
  return prompts;
}

// Rows of the model's vocabulary may be padding that no token of the tokenizer has: such an id shows as a replacement
// character, as a character cut in two does.
std::string decode_generated(const data::Tokenizer& tokenizer, const std::vector<int64_t>& ids) {
  std::string decoded;
  std::vector<int64_t> known;
  for (const int64_t id : ids) {
    if (tokenizer.has_token(id)) {
      known.push_back(id);
      continue;
    }
    decoded += tokenizer.decode(known) + kReplacement;
    known.clear();
  }
  return decoded + tokenizer.decode(known);
}

// Prints what is new and complete: a token may end inside a character, which shows as a replacement character until
// the next token brings the rest.
class TextStream {
 public:
  void show(const std::string& text, bool last) {
    size_t complete = text.size();
    while (!last && std::string_view(text).substr(0, complete).ends_with(kReplacement)) complete -= kReplacement.size();
    if (complete <= shown_) return;
    std::cout << text.substr(shown_, complete - shown_) << std::flush;
    shown_ = complete;
  }

 private:
  size_t shown_ = 0;
};

void answer(const model::Model& model, const data::Tokenizer& tokenizer, const Prompt& prompt,
            const train::GenerateOptions& options, bool json) {
  std::vector<int64_t> ids;
  TextStream stream;
  const auto on_token = [&](const train::GeneratedToken& token) {
    if (token.id != options.stop_ids.front()) ids.push_back(token.id);
    if (!json) stream.show(decode_generated(tokenizer, ids), /*last=*/false);
    return true;
  };
  const auto tokens = train::generate(model, tokenizer.encode(prompt.text), options, on_token);
  const std::string completion = decode_generated(tokenizer, ids);
  if (!json) {
    stream.show(completion, /*last=*/true);
    std::cout << "\n";
    return;
  }
  Json out;
  out["text"] = completion;
  out["ids"] = Json::array();
  out["log_probabilities"] = Json::array();
  for (const auto& token : tokens) {
    out["ids"].push_back(token.id);
    out["log_probabilities"].push_back(token.log_probability);
  }
  const bool finished = !tokens.empty() && tokens.back().id == options.stop_ids.front();
  out["finished"] = finished;
  std::string whole = completion;
  if (finished) whole += data::kEos;
  const Json decoded = data::decoded_json(data::decode_chat(whole, prompt.decode));
  out["message"] = decoded.at("message");
  out["issues"] = decoded.at("issues");
  std::cout << out.dump() << "\n" << std::flush;
}

}  // namespace

int run_generate(const GenerateArgs& args) {
  if (args.prompt.empty() == args.messages.empty()) {
    input_error("generate: give either --prompt TEXT or --messages FILE");
  }
  const int64_t vocab_size = model::read_config(std::filesystem::path(args.model) / "config.json").vocab_size;
  const auto tokenizer = load_tokenizer(args.tokenizer, args.model, vocab_size);
  if (!tokenizer) {
    input_error(args.model, ": has no tokenizer.json; name the folder of one with --tokenizer DIR");
  }
  const std::vector<Prompt> prompts = read_prompts(args, prompt_defaults(args, *tokenizer));
  const model::Model model = load_model(args.model, train::Storage::kAuto, args.adapter);
  train::GenerateOptions options;
  options.max_tokens = args.max_tokens;
  options.temperature = args.temperature;
  options.top_p = args.top_p;
  options.seed = args.seed;
  options.compute = compute_type(train::Compute::kAuto);
  options.stop_ids = {model.config.eos_token_id};
  for (const Prompt& prompt : prompts) answer(model, *tokenizer, prompt, options, args.json);
  return 0;
}

}  // namespace asterism::cli
