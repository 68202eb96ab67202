#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/file.h"

namespace asterism::data {

/// The text of one row. It lives as long as its RowSource.
struct RawRow {
  std::string_view text;  // surrounding white space removed
  std::string origin;     // "chats.jsonl:17"; for the rows of a list "chats.json:17 (row 3)"
  bool cut_off = false;   // the file ends within or right behind this row, without its line or list being closed
};

/// Reads the rows of a data file one after the other without parsing them: JSON Lines (.jsonl; empty lines are skipped,
/// CRLF and a byte order mark are accepted) or one JSON list (.json).
class RowSource {
 public:
  /// InputError when the file cannot be opened, its format comes with later work or is unknown, or a .json file is not
  /// a list.
  explicit RowSource(const std::filesystem::path& path);

  /// The next row, or nothing at the end. InputError when text follows a closed list.
  std::optional<RawRow> next();

 private:
  std::optional<RawRow> next_line();
  std::optional<RawRow> next_element();
  size_t element_end() const;
  std::string origin(size_t offset);
  void skip_space();

  std::shared_ptr<const MappedFile> file_;
  std::string_view text_;
  bool is_list_ = false;
  bool list_open_ = false;
  size_t at_ = 0;
  size_t counted_to_ = 0;  // line_ is the number of the line that holds this offset
  int64_t line_ = 1;
  int64_t row_ = 0;
};

/// The data files that `source` names: a file, a folder (its .jsonl and .json files and those of formats that come with
/// later work, sorted by name, not recursive) or a pattern with * ? [...], sorted. InputError when there are none.
std::vector<std::filesystem::path> data_files(const std::string& source);

}  // namespace asterism::data
