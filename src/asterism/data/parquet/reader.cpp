#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "asterism/data/parquet/arrow_json.h"
#include "asterism/data/parquet/reader_api.h"

namespace asterism::parquet_reader {
namespace {

constexpr int64_t kBatchRecords = 64;
constexpr int64_t kColumnBufferBytes = int64_t{256} << 10;

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename Value>
Value value_of(arrow::Result<Value> result) {
  check(result.status());
  return std::move(result).ValueOrDie();
}

/// Columns are read through small buffers and decoded a few records at a time, in this thread: memory depends on the
/// size of a page and a record, not on that of the file or a row group.
class File {
 public:
  explicit File(const std::string& path) {
    arrow::MemoryPool* pool = arrow::system_memory_pool();
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kColumnBufferBytes);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_batch_size(kBatchRecords);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(value_of(arrow::io::ReadableFile::Open(path, pool)), properties));
    builder.memory_pool(pool)->properties(arrow_properties);
    reader_ = value_of(builder.Build());
    batches_ = value_of(reader_->GetRecordBatchReader());
  }

  /// Nothing at the end.
  const std::string* next() {
    while (batch_ == nullptr || index_ == batch_->num_rows()) {
      check(batches_->ReadNext(&batch_));
      if (batch_ == nullptr) return nullptr;
      index_ = 0;
    }
    json_.clear();
    append_record(*batch_, index_++, json_);
    return &json_;
  }

  std::string error;

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t index_ = 0;
  std::string json_;
};

const char* open_file(const char* path, void** file) {
  thread_local std::string error;
  try {
    *file = new File(path);
    return nullptr;
  } catch (const std::exception& failure) {
    error = failure.what();
    return error.c_str();
  }
}

const char* next_record(void* file, const char** json, size_t* size) {
  auto& opened = *static_cast<File*>(file);
  try {
    const std::string* record = opened.next();
    *json = record != nullptr ? record->data() : nullptr;
    *size = record != nullptr ? record->size() : 0;
    return nullptr;
  } catch (const std::exception& failure) {
    opened.error = failure.what();
    return opened.error.c_str();
  }
}

void close_file(void* file) {
  delete static_cast<File*>(file);
}

const char* arrow_version() {
  return ARROW_VERSION_STRING;
}

constexpr AsterismParquetApi kApi = {open_file, next_record, close_file, arrow_version};

}  // namespace
}  // namespace asterism::parquet_reader

extern "C" __attribute__((visibility("default"))) const AsterismParquetApi* ASTERISM_PARQUET_ENTRY() {
  return &asterism::parquet_reader::kApi;
}
