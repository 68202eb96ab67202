#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "asterism/data/row_source.h"

namespace asterism::data {

/// The library that reads Parquet files. The dynamic loader looks for it next to the program first.
inline constexpr const char* kParquetLibrary = "libasterism_parquet.so";

/// Where this process's Parquet reader comes from: "" when there is none, else "Apache Arrow <version>".
std::string parquet_reader_version();

/// The records of a Parquet file as JSON objects (parquet/arrow_json.h), in order: its pages are compressed, so a
/// record cannot be read without those in front of it. InputError when the file is damaged, or when no reader is
/// installed; the text says then what to do. `library` is a parameter for tests.
std::unique_ptr<RowSource> open_parquet(const std::filesystem::path& file,
                                        const std::string& library = kParquetLibrary);

}  // namespace asterism::data
