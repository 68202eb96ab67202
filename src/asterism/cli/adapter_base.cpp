#include "asterism/cli/adapter_base.h"

#include <algorithm>
#include <array>

#include "asterism/checkpoint/fingerprint.h"
#include "asterism/cli/tensor_compare.h"
#include "asterism/cli/tensor_set.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

// Never FP8 or FP4, so that conversions keep them up to the rounding of bf16.
constexpr std::array<const char*, 4> kSampled = {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                                                 "model.hc_head.hc_fn"};
constexpr int64_t kSampledRows = 64;
constexpr double kSameCosine = 0.99;  // random weights have 0, rounding to bf16 leaves 0.99999

bool are_alike(const LazyTensor& a, const LazyTensor& b) {
  if (a.shape != b.shape) return false;
  const int64_t rows = std::min(kSampledRows, a.num_rows());
  return compare_tensors(a.rows(0, rows), b.rows(0, rows), {}).cosine() > kSameCosine;
}

}  // namespace

void check_adapter_base(const std::string& base, const fs::path& model) {
  if (base.empty()) return;
  std::error_code unknown;
  if (fs::equivalent(base, model, unknown)) return;
  if (!fs::exists(fs::path(base) / "config.json", unknown)) {
    log_info("the adapter names ", base, " as its base, which is not here to be compared with ", model.string());
    return;
  }
  if (checkpoint::base_fingerprint(base) == checkpoint::base_fingerprint(model)) return;
  const TensorSet a = open_tensors(base), b = open_tensors(model);
  for (const char* name : kSampled) {
    const auto mine = a.find(name), other = b.find(name);
    if (mine == a.end() || other == b.end() || are_alike(mine->second, other->second)) continue;
    input_error("the adapter was trained on ", base, ", and ", model.string(), " holds other weights (", name,
                " differs); expected that checkpoint, or a conversion or descendant of it. Take it as --model, or say "
                "--any-base when this is what you want");
  }
}

}  // namespace asterism::cli
