#include "asterism/core/memory.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace asterism {

namespace {

// A line of /proc/self/status in bytes; the file states kB.
uint64_t status_bytes(const char* key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.compare(0, std::strlen(key), key) == 0 && line[std::strlen(key)] == ':') {
      return std::strtoull(line.c_str() + std::strlen(key) + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

}  // namespace

uint64_t peak_resident_bytes() {
  return status_bytes("VmHWM");
}

uint64_t resident_bytes() {
  return status_bytes("VmRSS");
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace asterism
