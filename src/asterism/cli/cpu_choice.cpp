#include "asterism/cli/cpu_choice.h"

#include <string>

#include "asterism/core/error.h"
#include "asterism/ops/cpu/level.h"

namespace asterism::cli {

using ops::cpu::Level;

namespace {

// The names that this CPU can run.
std::string possible_names() {
  std::string names;
  for (const Level level : {Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16}) {
    if (level > ops::cpu::highest_level()) break;
    names += text(names.empty() ? "" : ", ", ops::cpu::level_name(level));
  }
  return names;
}

}  // namespace

void choose_cpu_level(const char* name) {
  const std::string wanted = name == nullptr ? "" : name;
  if (wanted.empty()) return ops::cpu::choose_level(ops::cpu::highest_level());
  const auto level = ops::cpu::level_of_name(wanted);
  if (!level) {
    input_error("ASTERISM_CPU: expected one of ", possible_names(), ", found '", wanted,
                "'; unset it to use the best level of this CPU");
  }
  if (*level > ops::cpu::highest_level()) {
    input_error("ASTERISM_CPU: this CPU lacks the instructions of '", wanted, "', it can run ", possible_names(),
                "; unset it to use the best of them");
  }
  ops::cpu::choose_level(*level);
}

}  // namespace asterism::cli
