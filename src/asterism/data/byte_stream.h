#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace asterism::data {

/// The bytes of a file one after the other, decompressed where it is compressed. Memory use does not depend on the
/// size of the file.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  /// Puts up to `size` > 0 bytes to `to` and returns how many; 0 at the end only. RunError when the file cannot be
  /// read; InputError when compressed data is damaged, cut off or followed by something else.
  virtual size_t read(char* to, size_t size) = 0;

  /// Whether seek() is possible: false for compressed data.
  virtual bool seekable() const { return false; }
  /// The next read() begins at this byte of the file.
  virtual void seek(uint64_t offset);
};

/// What the first bytes of a file say about it.
enum class Container { Plain, Gzip, Zstd, Parquet };

/// InputError when the file cannot be opened.
Container container_of(const std::filesystem::path& file);

/// The name of a container in messages: "", "gzip", "Zstandard", "Parquet".
std::string_view container_name(Container container);

/// Opens a file that is Plain, Gzip or Zstd.
std::unique_ptr<ByteStream> open_bytes(const std::filesystem::path& file, Container container);

}  // namespace asterism::data
