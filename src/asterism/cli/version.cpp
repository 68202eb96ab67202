#include "asterism/cli/version.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/headeronly/version.h>

#include "asterism/core/error.h"
#include "asterism/ops/cpu/level.h"
#include "asterism/ops/matmul.h"
#include "asterism/version.h"

namespace asterism::cli {

namespace {

std::string vector_instructions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return __builtin_cpu_supports("avx512bf16") ? "AVX512 (with bf16)" : "AVX512 (without bf16)";
  }
  if (__builtin_cpu_supports("avx2")) return "AVX2 (without bf16)";
  return "x86-64";
#elif defined(__aarch64__)
  return "ARM64";
#else
  return "unknown";
#endif
}

}  // namespace

std::string cpu_level() {
  return text(vector_instructions(), ", kernels ", ops::cpu::level_name(ops::cpu::level()));
}

std::string version_text() {
  const int64_t cuda_devices = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  std::string devices = "cpu";
  if (cuda_devices > 0) devices += text(", cuda x ", cuda_devices);
  return text("asterism ", kVersion, "\n",       //
              "libtorch ", TORCH_VERSION, "\n",  //
              "devices  ", devices, "\n",        //
              "cpu      ", cpu_level(), "\n",    //
              "fp32     ", ops::matmul_provider(at::kFloat), "\n", "bf16     ", ops::matmul_provider(at::kBFloat16),
              "\n", "threads  ", at::get_num_threads());
}

}  // namespace asterism::cli
