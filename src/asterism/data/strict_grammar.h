#pragma once

#include <array>

#include "asterism/data/completion_grammar.h"
#include "asterism/data/dsml_tags.h"

namespace asterism::data {

/// The official parser (encoding-spec 8.1), one marker at a time. It takes the same texts and gives the same messages;
/// where it takes a text that was cut, or a tag as a part of a name or value (8.2), the message is not `finished`.
///
/// ChatError otherwise: missing_think_end, missing_eos, text_after_eos, text_after_tool_calls, tool_call_format,
/// tool_name_format, parameter_format, duplicate_parameter, unterminated_tool_calls, unexpected_special_token. Of
/// several faults it is the one that the official parser reports.
class StrictGrammar final : public CompletionGrammar {
 public:
  StrictGrammar(const DecodeOptions& options, DeltaFunction on_delta);

  std::span<const std::string_view> markers() const override;
  void text(std::string_view piece) override;
  void marker(size_t index) override;
  DecodedChat end(std::string_view tail) override;

 private:
  enum class State { Reasoning, Content, Block, Name, Parameter, AfterParameter, AfterBlock, AfterEos };

  void enter(State state);
  void end_of_text();
  void read_name();
  void read_parameter();
  void expect_line_end(const char* category) const;
  void expect_nothing() const;
  void finish_call();
  void note_markup(std::string_view text);
  void reject_special_tokens() const;
  [[noreturn]] void fail(const char* category, const std::string& explanation) const;

  const ChatVariant variant_;
  const CallTags tags_;
  const std::string_view invoke_end_, parameter_end_;  // as the official parser looks for them
  const std::string block_start_;                      // with the blank line in front
  std::array<std::string_view, 2> markers_{};
  size_t marker_count_ = 0;
  State state_ = State::Content;
  size_t offset_ = 0;    // bytes read
  std::string segment_;  // text since the last marker, outside reasoning and content
  DecodedCall call_;
  ArgumentsText arguments_;
  DecodedChat chat_;
};

}  // namespace asterism::data
