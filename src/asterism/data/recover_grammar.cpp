#include "asterism/data/recover_grammar.h"

#include "asterism/data/chat_markup.h"

namespace asterism::data {
namespace {

bool holds_markup(std::string_view text) {
  return text.find(kDsml) != std::string_view::npos;
}

bool starts_with_quote(std::string_view json) {
  const size_t at = json.find_first_not_of(" \t\r\n");
  return at != std::string_view::npos && json[at] == '"';
}

}  // namespace

RecoverGrammar::MarkerSet::MarkerSet(std::vector<Marker> given) : markers(std::move(given)) {
  for (const Marker& marker : markers) texts.push_back(marker.text);
}

std::vector<RecoverGrammar::Marker> RecoverGrammar::text_markers(const CallTags& tags, bool tools_declared) {
  std::vector<Marker> markers = {{Tag::ThinkOpen, std::string(kThinkOpen)},
                                 {Tag::ThinkClose, std::string(kThinkClose)},
                                 {Tag::Eos, std::string(kEos)}};
  // Up to two line ends in front of the calls belong to them.
  for (const std::string_view gap : {kBlankLine, std::string_view("\r\n\r\n"), std::string_view("\n"),
                                     std::string_view("\r\n"), std::string_view()}) {
    markers.push_back({Tag::BlockOpen, std::string(gap).append(tags.block_open)});
    if (tools_declared) markers.push_back({Tag::InvokeOpen, std::string(gap).append(tags.invoke_open)});
  }
  return markers;
}

std::vector<RecoverGrammar::Marker> RecoverGrammar::call_markers(const CallTags& tags, bool in_parameter) {
  std::vector<Marker> markers = {{Tag::ParameterOpen, tags.parameter_open},
                                 {Tag::InvokeClose, tags.invoke_close},
                                 {Tag::InvokeOpen, tags.invoke_open},
                                 {Tag::BlockClose, tags.block_close},
                                 {Tag::Eos, std::string(kEos)}};
  if (in_parameter) markers.push_back({Tag::ParameterClose, tags.parameter_close});
  return markers;
}

RecoverGrammar::RecoverGrammar(const DecodeOptions& options, DeltaFunction on_delta)
    : CompletionGrammar(std::move(on_delta)),
      options_(options),
      tags_(options.variant),
      text_set_(text_markers(tags_, options.tools_declared)),
      block_set_(
          {{Tag::InvokeOpen, tags_.invoke_open}, {Tag::BlockClose, tags_.block_close}, {Tag::Eos, std::string(kEos)}}),
      call_set_(call_markers(tags_, /*in_parameter=*/false)),
      parameter_set_(call_markers(tags_, /*in_parameter=*/true)),
      after_block_set_({{Tag::Eos, std::string(kEos)}}),
      after_eos_set_({}),
      state_(options.thinking_mode == ThinkingMode::Thinking ? State::Reasoning : State::Content) {}

const RecoverGrammar::MarkerSet& RecoverGrammar::current_set() const {
  switch (state_) {
    case State::Between:
      return block_set_;
    case State::Name:
    case State::AfterParameter:
      return call_set_;
    case State::Parameter:
      return parameter_set_;
    case State::AfterBlock:
      return after_block_set_;
    case State::AfterEos:
      return after_eos_set_;
    default:
      return text_set_;
  }
}

std::span<const std::string_view> RecoverGrammar::markers() const {
  return current_set().texts;
}

void RecoverGrammar::enter(State state) {
  state_ = state;
  segment_.clear();
}

void RecoverGrammar::text(std::string_view piece) {
  add_text(chat_, state_, segment_, piece);
}

void RecoverGrammar::marker(size_t index) {
  const Marker& marker = current_set().markers[index];
  if (in_message_text()) return marker_in_text(marker);
  if (state_ == State::Between) return marker_in_block(marker.tag);
  if (state_ == State::AfterBlock) return end_token();
  marker_in_call(marker.tag);
}

void RecoverGrammar::marker_in_text(const Marker& marker) {
  const bool reasoning = state_ == State::Reasoning;
  switch (marker.tag) {
    case Tag::ThinkOpen: {
      // The prompt's own <think> repeated, or reasoning although the prompt asked for none.
      const bool leading = reasoning ? chat_.reasoning_content.empty()
                                     : chat_.content.empty() && options_.thinking_mode == ThinkingMode::Chat;
      if (!leading || chat_.has(DecodeIssue::LeadingThinkStart)) return text(marker.text);
      chat_.note(DecodeIssue::LeadingThinkStart);
      return enter(State::Reasoning);
    }
    case Tag::ThinkClose:
      if (!reasoning) chat_.note(DecodeIssue::ExtraThinkEnd);
      return enter(State::Content);
    case Tag::Eos:
      if (reasoning) chat_.note(DecodeIssue::MissingThinkEnd);
      return end_token();
    default:
      break;
  }
  if (reasoning) chat_.note(DecodeIssue::ToolBlockInReasoning);
  if (!marker.text.starts_with(kBlankLine)) chat_.note(DecodeIssue::BlockSeparator);
  has_wrapper_ = marker.tag == Tag::BlockOpen;
  block_just_opened_ = has_wrapper_;
  if (has_wrapper_) return enter(State::Between);
  chat_.note(DecodeIssue::MissingWrapper);
  begin_call();
}

void RecoverGrammar::marker_in_block(Tag tag) {
  check_gap_between_calls(tag == Tag::Eos);
  if (tag == Tag::InvokeOpen) return begin_call();
  if (tag == Tag::BlockClose) return end_block();
  if (has_wrapper_) chat_.note(DecodeIssue::UnterminatedToolCalls);
  end_token();
}

void RecoverGrammar::marker_in_call(Tag tag) {
  if (tag == Tag::Eos) {
    note_incomplete_call();
    return end_token();
  }
  if (state_ == State::Name) {
    read_name();
  } else if (tag == Tag::ParameterClose) {
    read_parameter();
  } else if (state_ == State::Parameter) {
    call_is_sound_ = false;  // another tag where the parameter should have been closed
  } else if (segment_ != "\n") {
    if (is_blank(segment_))
      chat_.note(DecodeIssue::Layout);
    else
      call_is_sound_ = false;  // perhaps the rest of a value that held a closing tag
  }
  if (tag == Tag::ParameterOpen) return enter(State::Parameter);
  if (tag == Tag::ParameterClose) return enter(State::AfterParameter);
  if (tag == Tag::InvokeClose) return finish_call();
  chat_.note(DecodeIssue::MalformedToolCall);
  if (tag == Tag::InvokeOpen) return begin_call();
  end_block();
}

void RecoverGrammar::begin_call() {
  call_ = {};
  arguments_ = {};
  call_is_sound_ = true;
  enter(State::Name);
}

void RecoverGrammar::read_name() {
  const auto found = lenient_invoke_name(segment_);
  if (!found || holds_markup(found->name)) {
    call_is_sound_ = false;
    return;
  }
  if (!found->exact) chat_.note(DecodeIssue::Layout);
  call_.name = found->name;
}

void RecoverGrammar::read_parameter() {
  auto parameter = strict_parameter(segment_);
  if (!parameter) {
    parameter = lenient_parameter(segment_);
    chat_.note(DecodeIssue::ParameterAttribute);
  }
  if (!parameter || holds_markup(parameter->key) || holds_markup(parameter->value)) {
    call_is_sound_ = false;
    return;
  }
  const std::string_view value = parameter->value;
  // Without the attribute, a text in quotes is a text: only other JSON is taken for JSON.
  const bool json = !parameter->is_string.value_or(false) && is_json(value);
  const bool is_string = parameter->is_string.value_or(!json || starts_with_quote(value));
  if (!is_string && !json) chat_.note(DecodeIssue::InvalidJsonValue);
  const std::string key(parameter->key);
  if (arguments_.has(key)) chat_.note(DecodeIssue::DuplicateParameter);
  arguments_.set(key, is_string || !json ? json_string(value) : std::string(value));
}

void RecoverGrammar::finish_call() {
  if (call_is_sound_) {
    call_.arguments = arguments_.text();
    add_call(chat_, std::move(call_));
  } else {
    chat_.note(DecodeIssue::MalformedToolCall);
  }
  enter(State::Between);
}

void RecoverGrammar::end_block() {
  finished_ = true;
  enter(State::AfterBlock);
}

void RecoverGrammar::end_token() {
  if (state_ == State::AfterBlock) check_text_after_block();
  finished_ = true;
  enter(State::AfterEos);
}

void RecoverGrammar::check_gap_between_calls(bool last) {
  std::string_view gap = segment_;
  const bool tag_ends = !block_just_opened_ || gap.starts_with('>');
  if (block_just_opened_ && tag_ends) gap.remove_prefix(1);
  block_just_opened_ = false;
  if (tag_ends && (gap == "\n" || (last && is_blank(gap)))) return;
  if (tag_ends && is_blank(gap)) return chat_.note(DecodeIssue::Layout);
  chat_.note(last && !has_wrapper_ ? DecodeIssue::TextAfterToolCalls : DecodeIssue::TextInToolCalls);
}

void RecoverGrammar::check_text_after_block() {
  if (segment_.empty()) return;
  chat_.note(is_blank(segment_) ? DecodeIssue::Layout : DecodeIssue::TextAfterToolCalls);
}

DecodedChat RecoverGrammar::end(std::string_view tail) {
  // A tag that was cut is no text of the message, but a "<" alone may be.
  const bool cut_tag = holds_markup(tail);
  if (!cut_tag && !tail.empty()) text(tail);
  switch (state_) {
    case State::Reasoning:
    case State::Content:
      if (state_ == State::Reasoning) chat_.note(DecodeIssue::MissingThinkEnd);
      if (cut_tag) chat_.note(DecodeIssue::UnterminatedToolCalls);
      break;
    case State::Between:
      if (has_wrapper_ || cut_tag) chat_.note(DecodeIssue::UnterminatedToolCalls);
      if (!segment_.empty()) check_gap_between_calls(/*last=*/true);
      break;
    case State::Name:
    case State::Parameter:
    case State::AfterParameter:
      note_incomplete_call();
      break;
    case State::AfterBlock:
      check_text_after_block();
      break;
    case State::AfterEos:
      if (!segment_.empty()) chat_.note(DecodeIssue::TextAfterEos);
      break;
  }
  if (!finished_) chat_.note(DecodeIssue::MissingEos);
  note_special_tokens();
  chat_.finished = finished_ && !chat_.has(DecodeIssue::UnterminatedToolCalls);
  return std::move(chat_);
}

void RecoverGrammar::note_incomplete_call() {
  chat_.note(DecodeIssue::UnterminatedToolCalls);
  if (state_ == State::Name) read_name();
  if (call_.name.empty()) return;
  chat_.incomplete_call = IncompleteCall{call_.name};
  if (state_ != State::Parameter) return;
  auto parameter = strict_parameter(segment_);
  if (!parameter) parameter = lenient_parameter(segment_);
  if (!parameter) return;
  chat_.incomplete_call->partial_parameter = parameter->key;
  chat_.incomplete_call->partial_value = parameter->value;
}

void RecoverGrammar::note_special_tokens() {
  for (const std::string* part : {&chat_.reasoning_content, &chat_.content}) {
    for (const std::string_view token : {kBos, kThinkOpen, kDsml}) {
      if (part->find(token) != std::string::npos) chat_.note(DecodeIssue::UnexpectedSpecialToken);
    }
    if (holds_other_dialect(*part, options_.variant)) chat_.note(DecodeIssue::OtherDialect);
  }
}

}  // namespace asterism::data
