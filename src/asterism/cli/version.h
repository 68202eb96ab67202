#pragma once

#include <string>

namespace asterism::cli {

/// What --version prints: versions of Asterism and libtorch, devices, level of the CPU, providers of matrix products
/// and threads, a line each.
std::string version_text();

/// "AVX512 (with bf16), kernels avx512": the widest vector instructions of this CPU, and the level at which our kernels
/// run (cpu_choice.h).
std::string cpu_level();

}  // namespace asterism::cli
