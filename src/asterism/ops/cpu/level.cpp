#include "asterism/ops/cpu/level.h"

#include <array>
#include <atomic>
#include <stdexcept>

namespace asterism::ops::cpu {

namespace {

constexpr std::array kLevels{Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16};

std::atomic<Level>& current_level() {
  static std::atomic<Level> current{highest_level()};
  return current;
}

}  // namespace

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kPortable:
      return "portable";
    case Level::kAvx2:
      return "avx2";
    case Level::kAvx512:
      return "avx512";
    case Level::kAvx512Bf16:
      return "avx512_bf16";
  }
  throw std::logic_error("unknown level");
}

std::optional<Level> level_of_name(std::string_view name) {
  for (const Level level : kLevels) {
    if (level_name(level) == name) return level;
  }
  return std::nullopt;
}

Level highest_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Level::kPortable;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Level::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? Level::kAvx512Bf16 : Level::kAvx512;
#else
  return Level::kPortable;
#endif
}

Level level() {
  return current_level();
}

void choose_level(Level level) {
  if (level > highest_level()) throw std::invalid_argument("this CPU lacks the instructions of the level");
  current_level() = level;
}

}  // namespace asterism::ops::cpu
