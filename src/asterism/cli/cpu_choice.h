#pragma once

namespace asterism::cli {

/// Lets the kernels of ops/cpu run at the level `name` (cpu/level.h: "avx2", "avx512", "avx512_bf16"), the value of the
/// variable ASTERISM_CPU; nullptr or "" means the highest level of this CPU. An unknown name or a level that this CPU
/// lacks is an InputError. Matrix products of libtorch are not affected.
void choose_cpu_level(const char* name);

}  // namespace asterism::cli
