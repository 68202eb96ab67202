#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "asterism/core/error.h"

namespace asterism::data {

/// A conversation or option that the chat encoding does not allow. `category` is a stable name for scripts
/// ("invalid_content", "unknown_role", "bad_tool_call", ...), `message_index` the position in the caller's messages.
class ChatError : public InputError {
 public:
  ChatError(std::string category, std::optional<size_t> message_index, const std::string& explanation);

  const std::string& category() const { return category_; }
  std::optional<size_t> message_index() const { return message_index_; }
  /// what() without the category.
  const std::string& explanation() const { return explanation_; }

 private:
  std::string category_;
  std::optional<size_t> message_index_;
  std::string explanation_;
};

}  // namespace asterism::data
