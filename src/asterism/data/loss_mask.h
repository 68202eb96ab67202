#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/chat_encoder.h"
#include "asterism/data/sample.h"
#include "asterism/data/tokenize.h"

namespace asterism::data {

/// Which assistant messages are trained.
///   All       every one.
///   LastTurn  those after the last user message or tool result.
///   Split     every answered user turn as a sample of its own that ends with its answers and trains only them.
///   Auto      LastTurn where old reasoning is dropped (thinking mode with drop_thinking, no tools), else All: an old
///             answer without its reasoning would teach to skip the reasoning.
enum class History { Auto, All, LastTurn, Split };

/// "auto", "all", "last_turn", "split"; ChatError (invalid_history) for any other name.
History history(std::string_view name);

/// Names of the components in rows and messages, indexed by Component.
inline constexpr std::array<const char*, kNumComponents> kComponentNames{"reasoning", "think_close", "content",
                                                                         "tool_calls", "eos"};

struct LossOptions {
  History history = History::Auto;
  std::array<float, kNumComponents> component_weights{1.0f, 1.0f, 1.0f, 1.0f, 1.0f};  // indexed by Component
  /// The number of the one sample that is wanted: others are not encoded and come out without tokens. A long
  /// conversation that is split would otherwise be encoded as a whole for each of its samples.
  std::optional<size_t> only_part{};
};

/// Bytes [begin, end) of a text whose tokens are targets of this weight.
struct WeightedRange {
  size_t begin, end;
  float weight;
};

/// A trained assistant body and its parts. The weights are message weight x component weight.
struct TargetBody {
  size_t begin, end;
  std::vector<WeightedRange> parts;
};

/// The bodies of `chat` that are trained: those that `history` selects (Split counts as LastTurn: the caller has cut
/// the messages) and whose message weight is not 0. Message weight: `loss_weight` (number >= 0, default 1), or 0 with
/// `loss: false`. ChatError (invalid_loss) when these keys hold anything else or demand training of a message that is
/// not the assistant's. `messages` are those that `chat` was made of.
std::vector<TargetBody> target_bodies(const EncodedChat& chat, const JsonValue& messages, const LossOptions& options);

/// Weight of every token as a target, unshifted. ends: end offset of each token, ascending.
/// A token is trained only if its bytes lie fully inside one body: a token that merges the last byte in front of a body
/// with its first would train the model to write what was given. Its weight is that of the part holding its first byte.
std::vector<float> token_weights(std::span<const TargetBody> bodies, std::span<const size_t> ends);

/// A sample and the text it was made of.
struct ChatSample {
  std::string text;
  Sample sample;
};

/// A conversation as samples: one, or with History::Split one per answered user turn. Each is encoded and tokenised
/// once as a whole. A conversation without an answered user turn gives one sample also then, so that callers can count
/// it. ChatError as encode_chat and target_bodies, and special_in_content.
std::vector<ChatSample> chat_samples(const Conversation& conversation, const ChatOptions& chat_options,
                                     const LossOptions& loss_options, const TokenizeFunction& tokenize,
                                     const std::string& origin);

}  // namespace asterism::data
