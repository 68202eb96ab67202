#include <fstream>
#include <iostream>

#include "asterism/cli/chat_rows.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
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
      result = answer(parse_row(line));
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
  const data::Tokenizer tokenizer = data::Tokenizer::load(args.tokenizer);
  const auto tokenize = [&](std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
    data::Encoding encoding = tokenizer.encode_with_ranges(text);
    ids = std::move(encoding.ids);
    ends.clear();
    for (const data::ByteRange& range : encoding.ranges) ends.push_back(range.end);
  };
  ChatDefaults defaults;
  defaults.chat.variant = data::chat_variant(args.variant);
  defaults.loss.history = data::history(args.history);
  return answer_rows(args.file, [&](const Json& row) { return encode_chat_row(row, defaults, tokenize); });
}

int run_chat_tokens(const ChatTokensArgs& args) {
  const data::Tokenizer tokenizer = data::Tokenizer::load(args.tokenizer);
  return answer_rows(args.file, [&](const Json& row) -> Json {
    if (!row.contains("text") || !row.at("text").is_string()) {
      throw ChatError("invalid_content", std::nullopt, "a row needs text");
    }
    return {{"ids", tokenizer.encode(row.at("text").get_ref<const std::string&>())}};
  });
}

}  // namespace asterism::cli
