#pragma once

#include <vector>

#include "asterism/data/completion_grammar.h"
#include "asterism/data/dsml_tags.h"

namespace asterism::data {

/// Reads a message out of any text (encoding-spec 8.4) and notes what was wrong; never throws. A text that the strict
/// grammar takes and calls finished gives the same message, except that values which are no JSON become strings. A call
/// is taken only when it is complete and nothing stands between its tags: no call is made of parts.
class RecoverGrammar final : public CompletionGrammar {
 public:
  RecoverGrammar(const DecodeOptions& options, DeltaFunction on_delta);

  std::span<const std::string_view> markers() const override;
  void text(std::string_view piece) override;
  void marker(size_t index) override;
  DecodedChat end(std::string_view tail) override;

 private:
  enum class State { Reasoning, Content, Between, Name, Parameter, AfterParameter, AfterBlock, AfterEos };
  enum class Tag {
    ThinkOpen,
    ThinkClose,
    Eos,
    BlockOpen,
    BlockClose,
    InvokeOpen,
    InvokeClose,
    ParameterOpen,
    ParameterClose
  };
  struct Marker {
    Tag tag;
    std::string text;
  };
  struct MarkerSet {
    explicit MarkerSet(std::vector<Marker> markers);
    std::vector<Marker> markers;
    std::vector<std::string_view> texts;
  };

  static std::vector<Marker> text_markers(const CallTags& tags, bool tools_declared);
  static std::vector<Marker> call_markers(const CallTags& tags, bool in_parameter);
  const MarkerSet& current_set() const;
  void enter(State state);
  bool in_message_text() const { return state_ == State::Reasoning || state_ == State::Content; }

  void marker_in_text(const Marker& marker);
  void marker_in_block(Tag tag);
  void marker_in_call(Tag tag);
  void begin_call();
  void read_name();
  void read_parameter();
  void finish_call();
  void end_block();
  void end_token();
  void check_gap_between_calls(bool last);
  void check_text_after_block();
  void note_incomplete_call();
  void note_special_tokens();

  const DecodeOptions options_;
  const CallTags tags_;
  const MarkerSet text_set_, block_set_, call_set_, parameter_set_, after_block_set_, after_eos_set_;
  State state_;
  std::string segment_;  // text since the last marker, outside reasoning and content
  bool has_wrapper_ = false;
  bool block_just_opened_ = false;
  bool finished_ = false;  // saw the end token or the end of the block
  bool call_is_sound_ = true;
  DecodedCall call_;
  ArgumentsText arguments_;
  DecodedChat chat_;
};

}  // namespace asterism::data
