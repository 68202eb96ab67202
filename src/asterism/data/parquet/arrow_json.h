#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <string>

namespace asterism::parquet_reader {

/// Appends record `index` of a batch as a JSON object, one member a column.
///   null              left out as a column and as a field of a struct: a struct column has every field that any record
///                     has, so null mostly means that the record had no such key. Kept in lists.
///   struct, map       object (the keys of a map must be text); list of any kind: list; dictionary: its value
///   string, binary    text, not checked
///   numbers, bool     as in Python's json: whole numbers exact, floats with the shortest digits that give them back
///   all others        text as Arrow prints it (dates, times, decimals, ...)
/// std::runtime_error for a map whose keys are not text.
void append_record(const arrow::RecordBatch& batch, int64_t index, std::string& out);

}  // namespace asterism::parquet_reader
