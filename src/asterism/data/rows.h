#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/chat_row.h"
#include "asterism/data/row_source.h"
#include "asterism/data/sample.h"

namespace asterism::data {

/// A row that cannot become samples. The text names file and line, the category, what is wrong and how the row begins.
/// Categories: those of ChatError, and invalid_json, invalid_utf8, too_deep, not_an_object, unknown_kind,
/// ambiguous_kind, unsupported_kind, empty_row, invalid_ids, length_mismatch, label_mismatch, padded_row.
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

/// The samples of one row: one, or several with History::Split. What a row is follows from its keys (null = absent):
///   messages   a conversation (chat_row.h).
///   input_ids  token ids, with optional labels aligned with them: -100 = not trained, else the id itself. Without
///              labels every token is trained.
///   text       plain text; every token is trained, and no token is added.
/// RowError for a row that is none or several of these or is malformed. InputError when an id does not fit the
/// vocabulary or text comes without a tokenizer: no single row is to blame, so these are never skipped.
std::vector<Sample> samples_of_row(const RawRow& row, const RowOptions& options);

/// The object that a row is. ChatError (invalid_utf8, too_deep, invalid_json, not_an_object) when it is none.
JsonValue parse_row(const RawRow& row);

}  // namespace asterism::data
