#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/chat_row.h"
#include "asterism/data/row_kind.h"
#include "asterism/data/row_source.h"
#include "asterism/data/sample.h"

namespace asterism::data {

/// A row that cannot become samples. The text names file and line, the category, what is wrong and how the row begins.
/// The categories are listed in docs/data.md.
class RowError : public InputError {
 public:
  RowError(std::string category, const std::string& explanation, const RawRow& row);
  const std::string& category() const { return category_; }
  /// What is wrong, without the place and the row.
  const std::string& explanation() const { return explanation_; }

 private:
  std::string category_, explanation_;
};

enum class BadRows { Error, Skip };

struct RowOptions : ChatDefaults {
  BadRows bad_rows = BadRows::Error;
  TokenizeFunction tokenize;  // may be empty when every row holds token ids
  int64_t vocab_size = 0;     // ids at or above it are an error; 0 = not checked
};

/// A row that was parsed and recognised.
struct ReadRow {
  RowKind kind;
  JsonValue object;             // of token and text rows
  std::optional<ChatRow> chat;  // of the others
};

/// What the text of a row says. RowError when it is no row of any kind.
ReadRow read_row(const RawRow& row, const RowOptions& options);

/// The samples of a row: one, or several with History::Split.
///   Tokens  the ids, with optional labels aligned with them: -100 = not trained, else the id itself. Without labels
///           every token is trained.
///   Text    every token of the document is trained, and no token is added.
///   others  chat_samples of the conversation
/// RowError for a row that is malformed. InputError when an id does not fit the vocabulary or text comes without a
/// tokenizer: no single row is to blame, so these are never skipped.
std::vector<Sample> samples_of(const ReadRow& read, const RawRow& row, const RowOptions& options);

/// samples_of(read_row(...)).
std::vector<Sample> samples_of_row(const RawRow& row, const RowOptions& options);

/// The object that a row is. ChatError (too_long, nul_byte, invalid_utf8, too_deep, duplicate_key, lone_surrogate,
/// invalid_json, not_an_object) when it is none.
JsonValue parse_row(const RawRow& row);

}  // namespace asterism::data
