#include "asterism/data/source_summary.h"

#include <optional>

#include "asterism/core/error.h"
#include "asterism/data/row_kind.h"
#include "asterism/data/rows.h"

namespace asterism::data {
namespace {

constexpr int kRowsTried = 100;

/// Of the first good row among the first ones.
std::optional<RowKind> kind_of_rows(RowSource& rows) {
  for (int i = 0; i < kRowsTried; ++i) {
    const auto row = rows.next();
    if (!row) break;
    try {
      return kind_of_row(parse_row(*row));
    } catch (const ChatError&) {
      continue;  // bad rows are reported where they are read
    }
  }
  return std::nullopt;
}

}  // namespace

std::string describe_source(const std::string& source, const std::vector<std::filesystem::path>& files) {
  std::string format = "no format";
  std::optional<RowKind> kind;
  for (const auto& file : files) {
    const auto rows = open_rows(file);
    format = rows->format();
    kind = kind_of_rows(*rows);
    if (kind) break;
  }
  return text(source, ": ", kind ? kind_name(*kind) : "no", " rows in ", format,
              files.size() == 1 ? "" : text(", ", files.size(), " files"));
}

}  // namespace asterism::data
