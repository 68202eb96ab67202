#pragma once

#include <cstddef>

/// What the library asterism_parquet offers. It is loaded when a Parquet file is opened, so that Arrow stands between
/// nobody and a program that reads none. Plain C at the border: neither side needs symbols of the other, and exceptions
/// stay where they are. Texts belong to the library and live until the next call for the same file (of open: by the
/// same thread).
struct AsterismParquetApi {
  /// Returns what went wrong, or null.
  const char* (*open)(const char* path, void** file);
  /// The next record as JSON text, or *json = null at the end. Returns what went wrong, or null.
  const char* (*next)(void* file, const char** json, size_t* size);
  void (*close)(void* file);
  const char* (*version)();  // of Arrow
};

/// The one function that the library exports. Its number changes with AsterismParquetApi.
#define ASTERISM_PARQUET_ENTRY asterism_parquet_api_1
using AsterismParquetEntry = const AsterismParquetApi* (*)();
