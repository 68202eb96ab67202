// Linked into test programs that compute: two variables choose what they compute with.
//   ASTERISM_CPU=avx2             kernels of that level (ops/cpu/level.h)
//   ASTERISM_ATTENTION=reference  plain tensor operations instead of the attention kernels
// `tools/test-kernels` runs the tests of the model every way this machine can.

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "asterism/ops/cpu/level.h"
#include "asterism/ops/sparse_attention_reference.h"

namespace asterism::ops {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& message) {
  std::cerr << message << "\n";
  std::exit(2);
}

struct KernelChoice {
  KernelChoice() {
    if (const std::string name = variable("ASTERISM_CPU"); !name.empty()) {
      const auto level = cpu::level_of_name(name);
      if (!level || *level > cpu::highest_level()) refuse("ASTERISM_CPU: this CPU has no level '" + name + "'");
      cpu::choose_level(*level);
    }
    const std::string attention = variable("ASTERISM_ATTENTION");
    if (attention == "reference") reference.emplace();
    if (!attention.empty() && attention != "reference") {
      refuse("ASTERISM_ATTENTION: expected 'reference' or nothing, found '" + attention + "'");
    }
  }

  std::optional<ReferenceAttention> reference;
};

const KernelChoice kernel_choice;

}  // namespace
}  // namespace asterism::ops
