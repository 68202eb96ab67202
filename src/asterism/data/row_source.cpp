#include "asterism/data/row_source.h"

#include "asterism/core/error.h"
#include "asterism/data/byte_stream.h"
#include "asterism/data/data_files.h"
#include "asterism/data/parquet_rows.h"
#include "asterism/data/text_rows.h"

namespace asterism::data {
namespace {

/// A name that promises more than the content holds: the file is damaged, or empty, or was never compressed.
void check_promise(const std::string& name, const std::string& suffix, Container promised, Container found) {
  if (!name.ends_with(suffix) || promised == found) return;
  input_error(name, ": the file is named ", suffix, " but holds no ", container_name(promised),
              " data; was it written or fetched completely?");
}

}  // namespace

RawRow RowSource::at(uint64_t, int64_t) {
  run_error("rows of ", format(), " can only be read in order");
}

std::unique_ptr<RowSource> open_rows(const std::filesystem::path& file) {
  const std::string name = file.string();
  if (!is_data_file_name(name)) {
    input_error(name,
                ": unknown kind of data file; expected .jsonl or .json (a row per line, or a list of rows), also "
                "with .gz or .zst, or .parquet");
  }
  const Container container = container_of(file);
  check_promise(name, ".gz", Container::Gzip, container);
  check_promise(name, ".zst", Container::Zstd, container);
  check_promise(name, ".parquet", Container::Parquet, container);
  if (container == Container::Parquet) return open_parquet(file);
  return std::make_unique<TextRows>(name, open_bytes(file, container), container, is_list_name(name));
}

}  // namespace asterism::data
