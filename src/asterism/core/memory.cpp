#include "asterism/core/memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

namespace asterism {

namespace {

// A line "key: 123 kB" of a file below /proc, in bytes.
uint64_t proc_bytes(const char* file, const char* key) {
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.compare(0, std::strlen(key), key) == 0 && line[std::strlen(key)] == ':') {
      return std::strtoull(line.c_str() + std::strlen(key) + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

uint64_t status_bytes(const char* key) {
  return proc_bytes("/proc/self/status", key);
}

// The number that a file of the control group holds; nothing for "max" and where there is no such file.
std::optional<uint64_t> group_bytes(const char* file) {
  std::ifstream stream(file);
  uint64_t bytes = 0;
  return stream >> bytes ? std::optional(bytes) : std::nullopt;
}

// What limits the control group that this process sees as its root, in the second and the first version.
constexpr const char* kGroupFiles[][2] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
};

}  // namespace

uint64_t peak_resident_bytes() {
  return status_bytes("VmHWM");
}

uint64_t resident_bytes() {
  return status_bytes("VmRSS");
}

uint64_t available_memory_bytes() {
  uint64_t available = proc_bytes("/proc/meminfo", "MemAvailable");
  for (const auto& [limit_file, used_file] : kGroupFiles) {
    const auto limit = group_bytes(limit_file), used = group_bytes(used_file);
    if (limit && used) available = std::min(available, *limit - std::min(*limit, *used));
  }
  return available;
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace asterism
