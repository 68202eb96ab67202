#include "asterism/data/parquet/arrow_json.h"

#include <arrow/api.h>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace asterism::parquet_reader {
namespace {

void append_value(const arrow::Array& array, int64_t index, std::string& out);

void append_text(std::string_view text, std::string& out) {
  constexpr const char* kDigits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <typename Number>
void append_number(Number number, std::string& out) {
  char digits[64];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end);
}

template <typename Number>
void append_float(Number number, std::string& out) {
  if (!std::isfinite(number)) {
    out += std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
    return;
  }
  const size_t begin = out.size();
  append_number(number, out);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

/// The members of a JSON object, with commas between them.
class Members {
 public:
  explicit Members(std::string& out) : out_(out) { out_ += '{'; }
  void begin(std::string_view key) {
    if (!first_) out_ += ", ";
    first_ = false;
    append_text(key, out_);
    out_ += ": ";
  }
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool first_ = true;
};

void append_struct(const arrow::StructArray& array, int64_t index, std::string& out) {
  Members members(out);
  for (int i = 0; i < array.num_fields(); ++i) {
    const arrow::Array& field = *array.field(i);
    if (field.IsNull(index)) continue;
    members.begin(array.struct_type()->field(i)->name());
    append_value(field, index, out);
  }
  members.end();
}

void append_range(const arrow::Array& values, int64_t begin, int64_t count, std::string& out) {
  out += '[';
  for (int64_t i = begin; i < begin + count; ++i) {
    if (i > begin) out += ", ";
    append_value(values, i, out);
  }
  out += ']';
}

template <typename List>
void append_list(const arrow::Array& array, int64_t index, std::string& out) {
  const auto& list = static_cast<const List&>(array);
  append_range(*list.values(), list.value_offset(index), list.value_length(index), out);
}

template <typename Strings>
std::string_view text_at(const arrow::Array& array, int64_t index) {
  return static_cast<const Strings&>(array).GetView(index);
}

template <typename Strings>
void append_string(const arrow::Array& array, int64_t index, std::string& out) {
  append_text(text_at<Strings>(array, index), out);
}

template <typename Numbers>
void append_whole(const arrow::Array& array, int64_t index, std::string& out) {
  append_number(static_cast<const Numbers&>(array).Value(index), out);
}

void append_map(const arrow::MapArray& map, int64_t index, std::string& out) {
  Members members(out);
  const int64_t begin = map.value_offset(index);
  for (int64_t i = begin; i < begin + map.value_length(index); ++i) {
    const arrow::Array& keys = *map.keys();
    switch (keys.type_id()) {
      case arrow::Type::STRING:
        members.begin(text_at<arrow::StringArray>(keys, i));
        break;
      case arrow::Type::LARGE_STRING:
        members.begin(text_at<arrow::LargeStringArray>(keys, i));
        break;
      case arrow::Type::STRING_VIEW:
        members.begin(text_at<arrow::StringViewArray>(keys, i));
        break;
      default:
        throw std::runtime_error("a map has keys that are not text but " + keys.type()->ToString());
    }
    append_value(*map.items(), i, out);
  }
  members.end();
}

void append_other(const arrow::Array& array, int64_t index, std::string& out) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) throw std::runtime_error(scalar.status().ToString());
  append_text((*scalar)->ToString(), out);
}

/// False for types that are not nested.
bool append_nested(const arrow::Array& array, int64_t index, std::string& out) {
  switch (array.type_id()) {
    case arrow::Type::STRUCT:
      append_struct(static_cast<const arrow::StructArray&>(array), index, out);
      return true;
    case arrow::Type::MAP:
      append_map(static_cast<const arrow::MapArray&>(array), index, out);
      return true;
    case arrow::Type::LIST:
      append_list<arrow::ListArray>(array, index, out);
      return true;
    case arrow::Type::LARGE_LIST:
      append_list<arrow::LargeListArray>(array, index, out);
      return true;
    case arrow::Type::FIXED_SIZE_LIST:
      append_list<arrow::FixedSizeListArray>(array, index, out);
      return true;
    case arrow::Type::LIST_VIEW:
      append_list<arrow::ListViewArray>(array, index, out);
      return true;
    case arrow::Type::LARGE_LIST_VIEW:
      append_list<arrow::LargeListViewArray>(array, index, out);
      return true;
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      append_value(*dictionary.dictionary(), dictionary.GetValueIndex(index), out);
      return true;
    }
    case arrow::Type::EXTENSION:
      append_value(*static_cast<const arrow::ExtensionArray&>(array).storage(), index, out);
      return true;
    default:
      return false;
  }
}

void append_value(const arrow::Array& array, int64_t index, std::string& out) {
  if (array.IsNull(index)) {
    out += "null";
    return;
  }
  if (append_nested(array, index, out)) return;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(index) ? "true" : "false";
      return;
    case arrow::Type::INT8:
      return append_whole<arrow::Int8Array>(array, index, out);
    case arrow::Type::INT16:
      return append_whole<arrow::Int16Array>(array, index, out);
    case arrow::Type::INT32:
      return append_whole<arrow::Int32Array>(array, index, out);
    case arrow::Type::INT64:
      return append_whole<arrow::Int64Array>(array, index, out);
    case arrow::Type::UINT8:
      return append_whole<arrow::UInt8Array>(array, index, out);
    case arrow::Type::UINT16:
      return append_whole<arrow::UInt16Array>(array, index, out);
    case arrow::Type::UINT32:
      return append_whole<arrow::UInt32Array>(array, index, out);
    case arrow::Type::UINT64:
      return append_whole<arrow::UInt64Array>(array, index, out);
    case arrow::Type::FLOAT:
      return append_float(static_cast<const arrow::FloatArray&>(array).Value(index), out);
    case arrow::Type::DOUBLE:
      return append_float(static_cast<const arrow::DoubleArray&>(array).Value(index), out);
    case arrow::Type::STRING:
      return append_string<arrow::StringArray>(array, index, out);
    case arrow::Type::LARGE_STRING:
      return append_string<arrow::LargeStringArray>(array, index, out);
    case arrow::Type::STRING_VIEW:
      return append_string<arrow::StringViewArray>(array, index, out);
    case arrow::Type::BINARY:
      return append_string<arrow::BinaryArray>(array, index, out);
    case arrow::Type::LARGE_BINARY:
      return append_string<arrow::LargeBinaryArray>(array, index, out);
    case arrow::Type::BINARY_VIEW:
      return append_string<arrow::BinaryViewArray>(array, index, out);
    default:
      return append_other(array, index, out);
  }
}

}  // namespace

void append_record(const arrow::RecordBatch& batch, int64_t index, std::string& out) {
  Members members(out);
  for (int i = 0; i < batch.num_columns(); ++i) {
    const arrow::Array& column = *batch.column(i);
    if (column.IsNull(index)) continue;
    members.begin(batch.schema()->field(i)->name());
    append_value(column, index, out);
  }
  members.end();
}

}  // namespace asterism::parquet_reader
