#pragma once

#include <optional>
#include <string_view>

namespace asterism::ops::cpu {

/// Instruction sets for which kernels are compiled (asterism_isa_kernels), each containing the ones before.
enum class Level { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

/// "portable", "avx2", "avx512", "avx512_bf16"
std::string_view level_name(Level level);
std::optional<Level> level_of_name(std::string_view name);

/// The highest level that this CPU has.
Level highest_level();

/// The level that kernels run at: the highest, unless another was chosen. Results of different levels differ by
/// rounding.
Level level();

/// At most the highest level. To be called while no kernel runs.
void choose_level(Level level);

}  // namespace asterism::ops::cpu
