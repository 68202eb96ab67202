#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <vector>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/model/model.h"

namespace asterism::testing {

/// Where reference data lie: tests/golden, then the folder ASTERISM_GOLDEN names, or ../shared/golden beside the
/// repository: cases of the same form that are too large for the repository, or kept elsewhere, are run as well.
std::vector<std::filesystem::path> golden_roots();

/// First root that holds the relative path; throws when none does.
std::filesystem::path golden_file(const std::string& relative);
bool has_golden_file(const std::string& relative);

/// Sub-folders of all roots below `kind` ("hf", "ref") that hold a config.json / any file: names without duplicates.
std::vector<std::string> golden_configs(const std::string& kind);

/// "case_b1s5" for every case_*.safetensors of a config in any root.
std::vector<std::string> golden_cases(const std::string& config);

/// The model of golden/hf/<config>, in fp32 or fp64.
model::Model golden_model(const std::string& config, at::ScalarType dtype);

/// A golden file read whole.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& relative);
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  at::Tensor tensor(const std::string& name) const;
  double scalar(const std::string& name) const;
  /// Names with the prefix, which is cut off.
  std::vector<std::string> below(const std::string& prefix) const;

 private:
  checkpoint::SafetensorsFile file_;
};

/// Rows [B, S] as one stream of B documents of S tokens, or with `lengths` one row of several documents.
model::TokenBatch golden_batch(const at::Tensor& id_BS, const at::Tensor& label_BS,
                               const std::vector<int64_t>& lengths = {});

/// fp64 [4]: sum, L2 norm, largest magnitude, sum of g[k] cos(k + 1), of the tensor flattened.
at::Tensor fingerprint(const at::Tensor& values);

/// Largest difference allowed for the gradient of a parameter, relative to its largest magnitude (README section 6).
double gradient_tolerance(const std::string& name);

/// Entries of layer 0's attn_hc whose exact gradient is 0 and which come out as noise in fp32 (README section 6).
bool is_degenerate(const std::string& name);

/// Gives every floating tensor except the router bias a gradient and returns (canonical name, leaf) pairs.
std::vector<std::pair<std::string, at::Tensor>> record_all(model::Model& model);

/// Compares gradients with those of a golden file: grad.<name> in full or fingerprint.<name>, the scale taken from the
/// reference. Reports through GoogleTest. `prefix` is put before both names ("sparse.").
void expect_gradients(const std::vector<std::pair<std::string, at::Tensor>>& leaves, const GoldenFile& golden,
                      const std::string& context);

}  // namespace asterism::testing
