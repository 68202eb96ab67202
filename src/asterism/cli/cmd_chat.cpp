#include <fstream>
#include <iostream>

#include "asterism/cli/chat_rows.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/session.h"
#include "asterism/core/error.h"
#include "asterism/data/rows.h"
#include "asterism/data/tokenizer.h"

namespace asterism::cli {

namespace {

using data::ChatError;
using Json = nlohmann::ordered_json;

Json error_row_of(const InputError& error) {
  return error_row(ChatError("invalid_row", std::nullopt, error.what()));
}

/// Writes what `answer` makes of every row of the file (- = stdin), or the error it throws, and goes on. A result that
/// nobody can receive ends the work.
template <typename Answer>
int answer_rows(const std::string& file, const Answer& answer) {
  std::ifstream opened;
  if (file != "-") opened.open(file, std::ios::binary);
  std::istream& rows = file == "-" ? std::cin : opened;
  if (!rows) input_error(file, ": cannot open");
  bool first = true;
  for (std::string line; std::getline(rows, line); first = false) {
    if (first && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json result;
    try {
      result = answer(data::parse_row({line, file, false}));
    } catch (const ChatError& error) {
      result = error_row(error);
    } catch (const InputError& error) {
      result = error_row_of(error);
    }
    std::cout << result.dump() << std::endl;
    if (!std::cout) run_error("cannot write the result to standard output");
  }
  if (rows.bad() || (file != "-" && !rows.eof())) run_error(file, ": cannot be read to its end");
  return kDone;
}

}  // namespace

int run_chat_encode(const ChatEncodeArgs& args) {
  const auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::load(args.tokenizer));
  const data::TokenizeFunction tokenize = data::tokenize_with(tokenizer);
  data::ChatDefaults defaults;
  defaults.chat.variant = variant_named(args.variant, args.tokenizer, tokenizer.get());
  defaults.loss.history = data::history(args.history);
  return answer_rows(args.file,
                     [&](data::JsonValue row) { return encode_chat_row(std::move(row), defaults, tokenize); });
}

int run_chat_tokens(const ChatTokensArgs& args) {
  const data::Tokenizer tokenizer = data::Tokenizer::load(args.tokenizer);
  return answer_rows(args.file, [&](const data::JsonValue& row) -> Json {
    const data::JsonValue& text = row.get("text");
    if (!text.is_string()) throw ChatError("invalid_content", std::nullopt, "a row needs text");
    return {{"ids", tokenizer.encode(text.as_string())}};
  });
}

}  // namespace asterism::cli
