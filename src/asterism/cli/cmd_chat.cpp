#include "asterism/cli/chat_rows.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/row_answers.h"
#include "asterism/cli/session.h"
#include "asterism/data/tokenizer.h"

namespace asterism::cli {

namespace {

using data::ChatError;
using Json = nlohmann::ordered_json;

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
