#include "asterism/data/chat_error.h"

#include <utility>

namespace asterism::data {
namespace {

std::string located(std::optional<size_t> index, const std::string& explanation) {
  return index ? "message " + std::to_string(*index) + ": " + explanation : explanation;
}

}  // namespace

ChatError::ChatError(std::string category, std::optional<size_t> message_index, const std::string& explanation)
    : InputError("[" + category + "] " + located(message_index, explanation)),
      category_(std::move(category)),
      message_index_(message_index),
      explanation_(located(message_index, explanation)) {}

}  // namespace asterism::data
