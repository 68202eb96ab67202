#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace asterism::data {

/// The JSON text of one row. `text` lives until the next call of its source.
struct RawRow {
  std::string_view text;  // surrounding white space removed
  std::string origin;     // "chats.jsonl:17", "chats.json:17 (row 3)", "chats.parquet (row 3)": for messages
  bool cut_off = false;   // the file ends within or right behind this row, without its line or list being closed
  bool too_long = false;  // the row has more than kMaxRowBytes: `text` is its beginning only
  uint64_t offset = 0;    // of a seekable source: where at() finds the row
  int64_t number = 0;     // its line in JSON Lines, its number from 1 in a list or a Parquet file
};

/// A row that is longer is not held in memory: nobody trains on it, and a file without line ends must not fill the
/// memory.
inline constexpr size_t kMaxRowBytes = size_t{256} << 20;

/// Reads the rows of a data file one after the other without parsing them. Memory use depends on the longest row, not
/// on the file. One thread at a time; a file may be open several times.
class RowSource {
 public:
  virtual ~RowSource() = default;

  /// The next row, or nothing at the end. Errors that are not of one row are exceptions: InputError for damaged
  /// compressed data and for text behind a closed list, RunError when the file cannot be read.
  virtual std::optional<RawRow> next() = 0;

  /// Whether at() works: uncompressed JSON Lines and lists.
  virtual bool seekable() const { return false; }

  /// The row that next() gave with this `offset` and `number`, now or when the file was read before; next() goes on
  /// behind it. Its origin has no line when it stands in a list. RunError when the file has become shorter.
  virtual RawRow at(uint64_t offset, int64_t number);

  /// "JSON Lines", "a JSON list", "JSON Lines (gzip)", "Parquet".
  virtual std::string format() const = 0;
};

/// Opens a data file. What it is follows from its content:
///   gzip or Zstandard data   is decompressed, then as below; rows can only be read in order
///   Parquet                  a row per record (parquet_rows.h)
///   [ and then { or ]        a JSON list; also any other list when the name says .json
///   anything else            JSON Lines: a row per line. Empty lines are skipped, CRLF and a byte order mark accepted
/// The name only says that it is a data file (data_files.h). InputError when the file cannot be opened, its name is
/// none of a data file or promises compression or Parquet that the content does not have, it is UTF-16 or UTF-32, or a
/// single object stands over several lines.
std::unique_ptr<RowSource> open_rows(const std::filesystem::path& file);

}  // namespace asterism::data
