#pragma once

#include <cstdint>

namespace asterism::testing {

/// Bytes that this process has read through calls, from any file; 0 where the system does not count.
int64_t bytes_read_so_far();

/// peak_resident_bytes() starts again from what is resident now. False where the system does not allow it.
bool restart_peak();

}  // namespace asterism::testing
