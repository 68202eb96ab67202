#include "asterism/data/parquet_rows.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "asterism/core/error.h"
#include "asterism/data/parquet/reader_api.h"

#define ASTERISM_TEXT_OF(name) #name
#define ASTERISM_NAME_TEXT(name) ASTERISM_TEXT_OF(name)

namespace asterism::data {
namespace {

struct Library {
  const AsterismParquetApi* api = nullptr;
  std::string problem;  // why there is none
};

Library load(const std::string& name) {
  // Local: Arrow brings libraries that libtorch has too, in other releases; neither may see those of the other.
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, ::dlerror()};
  void* entry = ::dlsym(handle, ASTERISM_NAME_TEXT(ASTERISM_PARQUET_ENTRY));
  if (entry == nullptr) return {nullptr, name + " belongs to another version of this program"};
  return {reinterpret_cast<AsterismParquetEntry>(entry)(), ""};
}

/// Loaded once and kept: a library cannot be unloaded safely.
const Library& library_of(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Library> libraries;
  const std::lock_guard lock(mutex);
  const auto found = libraries.find(name);
  return found != libraries.end() ? found->second : libraries.emplace(name, load(name)).first->second;
}

class ParquetRows final : public RowSource {
 public:
  ParquetRows(const std::filesystem::path& file, const AsterismParquetApi& api) : place_(file.string()), api_(api) {
    if (const char* problem = api_.open(place_.c_str(), &file_)) damaged(problem);
  }
  ~ParquetRows() override { api_.close(file_); }
  ParquetRows(const ParquetRows&) = delete;
  ParquetRows& operator=(const ParquetRows&) = delete;

  std::optional<RawRow> next() override {
    const char* json = nullptr;
    size_t size = 0;
    if (const char* problem = api_.next(file_, &json, &size)) damaged(problem);
    if (json == nullptr) return std::nullopt;
    ++number_;
    return RawRow{.text = {json, size},
                  .origin = text(place_, " (row ", number_, ")"),
                  .too_long = size > kMaxRowBytes,
                  .number = number_};
  }

  std::string format() const override { return "Parquet"; }

 private:
  [[noreturn]] void damaged(const char* problem) const {
    input_error(place_, number_ > 0 ? text(" (behind row ", number_, ")") : "",
                ": the Parquet file cannot be read: ", problem);
  }

  std::string place_;
  const AsterismParquetApi& api_;
  void* file_ = nullptr;
  int64_t number_ = 0;
};

}  // namespace

std::string parquet_reader_version() {
  const Library& library = library_of(kParquetLibrary);
  return library.api == nullptr ? "" : text("Apache Arrow ", library.api->version());
}

std::unique_ptr<RowSource> open_parquet(const std::filesystem::path& file, const std::string& name) {
  const Library& library = library_of(name);
  if (library.api == nullptr) {
    input_error(file.string(),
                ": Parquet files need Apache Arrow, and this program was built without it or cannot find "
                "it now (",
                library.problem,
                "). Run `make setup`, which installs it as the Python package pyarrow, and "
                "`make build`; or convert the file: python3 -c 'import pandas, sys; "
                "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient=\"records\", lines=True)' ",
                file.filename().string(), " rows.jsonl");
  }
  return std::make_unique<ParquetRows>(file, *library.api);
}

}  // namespace asterism::data
