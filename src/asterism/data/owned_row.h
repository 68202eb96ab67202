#pragma once

#include <string>

#include "asterism/data/row_source.h"

namespace asterism::data {

/// A row with its text, which outlives the call and the source that it came from.
struct OwnedRow {
  std::string text;
  RawRow row;  // its text is set by `view` only, for objects move

  OwnedRow() = default;
  explicit OwnedRow(const RawRow& source) : text(source.text), row(source) {}

  RawRow view() const {
    RawRow result = row;
    result.text = text;
    return result;
  }
};

}  // namespace asterism::data
