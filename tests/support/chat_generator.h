#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/rng.h"
#include "asterism/data/conversation.h"

namespace asterism::test {

/// Draws the numbers of a random stream one after the other.
class Dice {
 public:
  Dice(uint64_t seed, std::string_view purpose, uint64_t id = 0) : stream_(seed, purpose, {id}) {}

  uint64_t below(uint64_t bound) { return stream_.below(bound, next_++); }
  /// Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(below(high - low + 1)); }
  bool chance(double probability) { return stream_.uniform(next_++) < probability; }
  uint64_t bits() { return stream_.bits(next_++); }
  template <typename Range>
  const auto& pick(const Range& range) {
    return range[below(std::size(range))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

/// Text of up to `max_pieces` words, punctuation, emoji, control characters, and pieces that look like the markup of
/// the chat format or break off in it. It never holds a special token of a completion.
std::string hostile_text(Dice& dice, size_t max_pieces);

/// Any JSON value with hostile text in it.
data::JsonValue hostile_json(Dice& dice, int max_depth);

/// The arguments of a tool call: an object whose keys can be framed.
data::JsonValue hostile_arguments(Dice& dice);

/// A conversation of some turns with tools, tool results, reasoning, reminders and hostile text everywhere, that every
/// variant can encode. Arguments of calls are JSON text in various spellings, or objects.
data::Conversation hostile_conversation(Dice& dice);

}  // namespace asterism::test
