#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/chat_decoder.h"
#include "asterism/data/chat_error.h"
#include "asterism/data/stream_decoder.h"
#include "tests/data/chat_files.h"

namespace asterism::data {

/// The decoded form, or {"error", "explanation"}, of a completion that arrives in these pieces.
template <typename Pieces>
nlohmann::ordered_json decoded_from(const Pieces& pieces, const DecodeOptions& options,
                                    const DeltaFunction& sink = {}) {
  try {
    StreamDecoder decoder(options, sink);
    for (const auto& piece : pieces) decoder.feed(piece);
    return decoded_json(decoder.finish());
  } catch (const ChatError& error) {
    return {{"error", error.category()}, {"explanation", error.explanation()}};
  }
}

inline nlohmann::ordered_json decoded(std::string_view text, const DecodeOptions& options) {
  return decoded_from(std::vector<std::string_view>{text}, options);
}

inline DecodeOptions recover(ThinkingMode mode = ThinkingMode::Chat) {
  DecodeOptions options;
  options.thinking_mode = mode;
  options.mode = DecodeMode::Recover;
  return options;
}

inline DecodeOptions strict(ThinkingMode mode = ThinkingMode::Chat) {
  DecodeOptions options;
  options.thinking_mode = mode;
  return options;
}

/// The tags of tool calls in a text, as v4.1 spells them.
inline std::string in_v41_tags(std::string text) {
  const std::pair<std::string, std::string> spellings[] = {{"｜DSML｜tool_calls", "｜DSML｜ calls"},
                                                           {"｜DSML｜invoke", "｜DSML｜ invoke"},
                                                           {"｜DSML｜parameter", "｜DSML｜ parameter"}};
  for (const auto& [from, to] : spellings) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

/// The cases of tests/golden/encoding/<name>.
inline std::vector<nlohmann::ordered_json> decoder_cases(const std::string& name) {
  std::vector<nlohmann::ordered_json> cases;
  for (const JsonValue& item : own_cases(name)) cases.push_back(nlohmann::ordered_json::parse(to_json(item)));
  return cases;
}

/// Every completion of the golden cases, with its thinking mode.
struct GoldenCompletion {
  std::string id, text;
  ThinkingMode thinking_mode;
};
inline std::vector<GoldenCompletion> golden_completions() {
  std::vector<GoldenCompletion> completions;
  for (const char* file : {"parse_ok.json", "parse_errors.json", "parse_recover_proposal.json"}) {
    for (const auto& item : decoder_cases(file)) {
      completions.push_back(
          {item.at("id"), item.at("text"), thinking_mode(item.at("thinking_mode").get<std::string>())});
    }
  }
  return completions;
}

}  // namespace asterism::data
