#pragma once

#include "asterism/ops/cpu/level.h"

/// Functions that are compiled once per level from one source in cpu/isa, which needs no intrinsics to say what it
/// does, only a compiler that is allowed wider vectors. The header of the kernel declares what callers see; its .cpp is
///
///   ASTERISM_EACH_LEVEL(template <typename T> void scale_rows(const ScaleArgs<T>& args);)
///
///   template <typename T>
///   void scale_rows(const ScaleArgs<T>& args) {
///     ASTERISM_AT_LEVEL(scale_rows<T>)(args);
///   }
///
/// AVX2 is the floor of x86-64, other processors have one form of the source (asterism_isa_kernels, PORTABLE).
#if defined(__x86_64__)
#define ASTERISM_EACH_LEVEL(...) \
  namespace isa_avx2 {           \
  __VA_ARGS__                    \
  }                              \
  namespace isa_avx512 {         \
  __VA_ARGS__                    \
  }
#define ASTERISM_AT_LEVEL(...) \
  (::asterism::ops::cpu::level() >= Level::kAvx512 ? isa_avx512::__VA_ARGS__ : isa_avx2::__VA_ARGS__)
#else
#define ASTERISM_EACH_LEVEL(...) \
  namespace isa_portable {       \
  __VA_ARGS__                    \
  }
#define ASTERISM_AT_LEVEL(...) (isa_portable::__VA_ARGS__)
#endif
