#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "asterism/data/json_value.h"
#include "tests/support/chat_generator.h"

namespace asterism::fuzz {

using test::Dice;

/// Runs `check` on inputs number 0, 1, 2, ... whose dice depend on `target` and the number alone. Anything but an
/// InputError that leaves it, and every failed expectation, is reported with the number; the first one ends the run.
/// `count` inputs, or 60 seconds of them with ASTERISM_LONG in the environment.
void for_each_input(std::string_view target, uint64_t count, const std::function<void(Dice& dice)>& check);

/// The text after one to four changes: flipped bits, other bytes, cuts, copies, markers of the chat format and of JSON,
/// bytes that are no UTF-8, and parts of `others`.
std::string mutated(Dice& dice, std::string text, std::span<const std::string> others);

/// Replaces some values of a tree by others, of another kind mostly.
void mutate_values(Dice& dice, data::JsonValue& value);

/// Cuts a text into pieces at random places.
std::vector<std::string_view> random_pieces(Dice& dice, std::string_view text);

}  // namespace asterism::fuzz
