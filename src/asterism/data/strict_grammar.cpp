#include "asterism/data/strict_grammar.h"

#include "asterism/data/chat_markup.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr std::string_view kLineEnd = ">\n";
constexpr size_t kShownCharacters = 60;

std::string shown(std::string_view text) {
  return "\"" + readable_prefix(text, kShownCharacters) + "\"";
}

}  // namespace

StrictGrammar::StrictGrammar(const DecodeOptions& options, DeltaFunction on_delta)
    : CompletionGrammar(std::move(on_delta)),
      variant_(options.variant),
      tags_(options.variant),
      // Without the ">" that ends both, and the second without its "<".
      invoke_end_(std::string_view(tags_.invoke_close).substr(0, tags_.invoke_close.size() - 1)),
      parameter_end_(std::string_view(tags_.parameter_close).substr(1, tags_.parameter_close.size() - 2)),
      block_start_(std::string(kBlankLine) + tags_.block_open) {
  enter(options.thinking_mode == ThinkingMode::Thinking ? State::Reasoning : State::Content);
}

void StrictGrammar::enter(State state) {
  state_ = state;
  segment_.clear();
  marker_count_ = 2;
  switch (state) {
    case State::Reasoning:
      markers_ = {kThinkClose, block_start_};
      break;
    case State::Content:
      markers_ = {kEos, block_start_};
      break;
    case State::Block:
      markers_ = {tags_.invoke_open, tags_.block_close};
      break;
    case State::Name:
    case State::AfterParameter:
      markers_ = {tags_.parameter_open, invoke_end_};
      break;
    case State::Parameter:
      markers_ = {parameter_end_};
      marker_count_ = 1;
      break;
    case State::AfterBlock:
      markers_ = {kEos};
      marker_count_ = 1;
      break;
    case State::AfterEos:
      marker_count_ = 0;
      break;
  }
}

std::span<const std::string_view> StrictGrammar::markers() const {
  return std::span(markers_).first(marker_count_);
}

void StrictGrammar::text(std::string_view piece) {
  offset_ += piece.size();
  add_text(chat_, state_, segment_, piece);
}

void StrictGrammar::marker(size_t index) {
  offset_ += markers_[index].size();
  const bool first = index == 0;
  switch (state_) {
    case State::Reasoning:
      if (!first)
        fail("missing_think_end", "a block of tool calls begins in the reasoning; expected </think> before it");
      return enter(State::Content);
    case State::Content:
      return enter(first ? State::AfterEos : State::Block);
    case State::Block:
      expect_line_end("tool_call_format");
      return enter(first ? State::Name : State::AfterBlock);
    case State::Name:
      read_name();
      break;
    case State::Parameter:
      read_parameter();
      return enter(State::AfterParameter);
    case State::AfterParameter:
      expect_line_end("parameter_format");
      break;
    case State::AfterBlock:
      expect_nothing();
      return enter(State::AfterEos);
    case State::AfterEos:
      return;
  }
  if (first) return enter(State::Parameter);
  finish_call();
  enter(State::Block);
}

DecodedChat StrictGrammar::end(std::string_view tail) {
  if (!tail.empty()) text(tail);
  end_of_text();
  reject_special_tokens();
  chat_.finished = !chat_.has(DecodeIssue::IncompleteToolCalls);
  return std::move(chat_);
}

void StrictGrammar::end_of_text() {
  switch (state_) {
    case State::Reasoning:
      fail("missing_think_end", "the text ends in the reasoning; expected </think>");
    case State::Content:
      fail("missing_eos", "the text ends without the end token");
    case State::Block:
      if (segment_.empty()) return chat_.note(DecodeIssue::IncompleteToolCalls);
      expect_line_end("tool_call_format");
      fail("unterminated_tool_calls", "the text ends in the block of tool calls");
    case State::Name:
      read_name();
      break;
    case State::Parameter:
      read_parameter();
      fail("parameter_format", "the text ends in a parameter");
    case State::AfterParameter:
      expect_line_end("parameter_format");
      break;
    case State::AfterBlock:
      return expect_nothing();
    case State::AfterEos:
      if (!segment_.empty()) fail("text_after_eos", "text follows the end token: " + shown(segment_));
      return;
  }
  // A call that was cut between two lines is a call to the official parser.
  finish_call();
  chat_.note(DecodeIssue::IncompleteToolCalls);
}

void StrictGrammar::read_name() {
  const auto name = strict_invoke_name(segment_);
  if (!name) fail("tool_name_format", "expected name=\"...\"> and a line end in a call, found " + shown(segment_));
  note_markup(*name);
  call_ = {std::string(*name), {}};
  arguments_ = {};
}

void StrictGrammar::read_parameter() {
  std::string_view content = segment_;
  if (content.ends_with('\n')) content.remove_suffix(1);
  const bool closed = content.ends_with('<');
  if (closed) content.remove_suffix(1);
  const auto parameter = closed ? strict_parameter(content) : std::nullopt;
  if (!parameter) {
    fail("parameter_format",
         "expected name=\"...\" string=\"true|false\">... up to a closing tag, found " + shown(segment_));
  }
  const std::string key(parameter->key);
  if (arguments_.has(key)) fail("duplicate_parameter", "parameter " + shown(key) + " stands twice in a call");
  note_markup(parameter->key);
  note_markup(parameter->value);
  if (!*parameter->is_string && !is_json(parameter->value)) chat_.note(DecodeIssue::InvalidJsonValue);
  arguments_.set(key, *parameter->is_string ? json_string(parameter->value) : std::string(parameter->value));
}

void StrictGrammar::finish_call() {
  call_.arguments = arguments_.text();
  add_call(chat_, std::move(call_));
}

void StrictGrammar::note_markup(std::string_view text) {
  for (const std::string_view token : {kDsml, kEos}) {
    if (text.find(token) != std::string_view::npos) chat_.note(DecodeIssue::IncompleteToolCalls);
  }
}

void StrictGrammar::expect_line_end(const char* category) const {
  if (segment_ == kLineEnd) return;
  fail(category, "expected only > and a line end between two tags, found " + shown(segment_));
}

void StrictGrammar::expect_nothing() const {
  if (!segment_.empty()) fail("text_after_tool_calls", "text follows the block of tool calls: " + shown(segment_));
}

void StrictGrammar::reject_special_tokens() const {
  for (const std::string_view token : {kBos, kEos, kThinkOpen, kThinkClose, kDsml}) {
    for (const std::string* part : {&chat_.content, &chat_.reasoning_content}) {
      if (part->find(token) == std::string::npos) continue;
      const char* place = part == &chat_.content ? "content" : "reasoning";
      const bool elsewhere = token == kDsml && holds_other_dialect(*part, variant_);
      const char* hint = elsewhere ? "; it is tool markup of another variant of the encoding: name that variant" : "";
      throw ChatError("unexpected_special_token", std::nullopt,
                      asterism::text("the token ", token, " stands in the ", place, hint));
    }
  }
}

void StrictGrammar::fail(const char* category, const std::string& explanation) const {
  throw ChatError(category, std::nullopt, asterism::text(explanation, " (byte ", offset_, " of the completion)"));
}

}  // namespace asterism::data
