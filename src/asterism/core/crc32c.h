#pragma once

#include <cstddef>
#include <cstdint>

namespace asterism {

/// CRC-32C (Castagnoli; RFC 3720) of `bytes` bytes that follow others whose checksum is `before` (0: nothing). Pieces
/// of a file that are written in any order get their checksums at once, and crc32c_combine joins them.
uint32_t crc32c(const void* data, size_t bytes, uint32_t before = 0);

/// The checksum of two pieces in a row: `first`, then `second`, which is `second_bytes` long.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace asterism
