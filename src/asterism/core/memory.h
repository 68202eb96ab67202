#pragma once

#include <cstdint>

namespace asterism {

/// Largest resident size of this process so far, bytes (VmHWM). 0 where the system does not tell.
uint64_t peak_resident_bytes();

/// Resident size now, bytes (VmRSS). 0 where the system does not tell.
uint64_t resident_bytes();

/// Memory that this process may still take without swapping, bytes: what the system has available, or what its control
/// group leaves, whichever is less. 0 where the system does not tell.
uint64_t available_memory_bytes();

/// Tells the C allocator to keep freed memory instead of returning it to the system: writing to freshly mapped pages is
/// several times slower than to known ones. Call once, before the first large allocation.
void keep_freed_memory();

}  // namespace asterism
