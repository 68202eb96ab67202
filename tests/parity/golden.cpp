#include "tests/parity/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "tests/support/gradients.h"

namespace asterism::testing {
namespace fs = std::filesystem;

std::vector<fs::path> golden_roots() {
  std::vector<fs::path> roots = {fs::path(ASTERISM_SOURCE_DIR) / "tests/golden"};
  const char* named = std::getenv("ASTERISM_GOLDEN");
  const fs::path beside = fs::path(ASTERISM_SOURCE_DIR) / "../shared/golden";
  if (named != nullptr) roots.emplace_back(named);
  if (fs::is_directory(beside)) roots.push_back(beside);
  return roots;
}

fs::path golden_file(const std::string& relative) {
  for (const fs::path& root : golden_roots()) {
    if (fs::exists(root / relative)) return root / relative;
  }
  throw std::runtime_error("no reference file " + relative);
}

bool has_golden_file(const std::string& relative) {
  for (const fs::path& root : golden_roots()) {
    if (fs::exists(root / relative)) return true;
  }
  return false;
}

std::vector<std::string> golden_configs(const std::string& kind) {
  std::set<std::string> names;
  for (const fs::path& root : golden_roots()) {
    if (!fs::is_directory(root / kind)) continue;
    for (const auto& entry : fs::directory_iterator(root / kind)) {
      if (fs::exists(entry.path() / "meta.json")) names.insert(entry.path().filename().string());
    }
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> golden_cases(const std::string& config) {
  std::set<std::string> names;
  for (const fs::path& root : golden_roots()) {
    if (!fs::is_directory(root / "hf" / config)) continue;
    for (const auto& entry : fs::directory_iterator(root / "hf" / config)) {
      const std::string file = entry.path().filename().string();
      const std::string ending = ".safetensors";
      if (file.rfind("case_", 0) != 0 || !file.ends_with(ending)) continue;
      const std::string stem = file.substr(0, file.size() - ending.size());
      if (stem.find('.') == std::string::npos) names.insert(stem);
    }
  }
  return {names.begin(), names.end()};
}

model::Model golden_model(const std::string& config, at::ScalarType dtype) {
  const fs::path folder = golden_file("hf/" + config + "/model.safetensors").parent_path();
  model::Model model;
  model.config = model::read_config(folder / "config.json");
  model.weights = checkpoint::read_weights(folder, model.config, {}).weights;
  if (dtype == at::kDouble) {
    model::for_each_tensor(model.config, model.weights, [](const model::TensorSpec& spec, at::Tensor& tensor) {
      if (spec.role != model::TensorRole::kTable) tensor = tensor.to(at::kDouble);
    });
  }
  return model;
}

GoldenFile::GoldenFile(const std::string& relative) : file_(checkpoint::SafetensorsFile::open(golden_file(relative))) {}

at::Tensor GoldenFile::tensor(const std::string& name) const {
  return file_.copy(name);
}

double GoldenFile::scalar(const std::string& name) const {
  return file_.copy(name).to(at::kDouble).item<double>();
}

std::vector<std::string> GoldenFile::below(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& info : file_.tensors()) {
    if (info.name.rfind(prefix, 0) == 0) names.push_back(info.name.substr(prefix.size()));
  }
  return names;
}

model::TokenBatch golden_batch(const at::Tensor& id_BS, const at::Tensor& label_BS,
                               const std::vector<int64_t>& lengths) {
  std::vector<int64_t> all = lengths;
  if (all.empty()) all.assign(id_BS.size(0), id_BS.size(1));
  return model::make_token_batch(id_BS.flatten(), label_BS.flatten(), all);
}

at::Tensor fingerprint(const at::Tensor& values) {
  const at::Tensor v = values.detach().to(at::kDouble).flatten();
  const at::Tensor wave = at::arange(1, v.numel() + 1, at::kDouble).cos();
  return at::stack({v.sum(), v.norm(), v.abs().max(), (v * wave).sum()});
}

double gradient_tolerance(const std::string& name) {
  const bool few = name.ends_with("scale") || name.ends_with("base");
  return few ? 2e-4 : 2e-5;
}

bool is_degenerate(const std::string& name) {
  return name.find("layers.0.attn_hc.") != std::string::npos;
}

std::vector<std::pair<std::string, at::Tensor>> record_all(model::Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> leaves;
  model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role == model::TensorRole::kTable || spec.role == model::TensorRole::kRouterBias) return;
    tensor = tensor.detach().clone().requires_grad_(true);
    leaves.emplace_back(spec.name, tensor);
  });
  return leaves;
}

namespace {

// A fingerprint's entries are sums over the whole tensor: each may differ by the tensor's tolerance times the sum of
// magnitudes, bounded here by sqrt(n) * norm for the sums and by the norm for the rest.
void expect_fingerprint(const at::Tensor& grad, const at::Tensor& want, double tolerance, double floor,
                        const std::string& where) {
  const at::Tensor got = fingerprint(grad);
  const double norm = want[1].item<double>();
  const double spread = std::sqrt(static_cast<double>(grad.numel()));
  const double allowed[4] = {tolerance * norm * std::min(spread, 10.0), tolerance * norm, tolerance * norm,
                             tolerance * norm * std::min(spread, 10.0)};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(got[i].item<double>(), want[i].item<double>(), allowed[i] + floor) << where << ", fingerprint " << i;
  }
}

}  // namespace

void expect_gradients(const std::vector<std::pair<std::string, at::Tensor>>& leaves, const GoldenFile& golden,
                      const std::string& context) {
  int64_t compared = 0;
  double squares = 0.0, gap_squares = 0.0;
  for (const auto& [name, leaf] : leaves) {
    const at::Tensor grad = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
    const std::string where = context + ", " + name;
    const double tolerance = gradient_tolerance(name);
    // Noise of exact zeros (README section 6) is bounded absolutely.
    const double floor = is_degenerate(name) ? 5e-5 : 1e-7;
    if (golden.has("grad." + name)) {
      const at::Tensor want = golden.tensor("grad." + name).to(at::kDouble), got = grad.to(at::kDouble);
      ASSERT_EQ(want.sizes(), got.sizes()) << where;
      if (want.numel() == 0) continue;
      const double top = want.abs().max().item<double>();
      EXPECT_LE((got - want).abs().max().item<double>(), tolerance * top + floor) << where << ", largest " << top;
      squares += want.square().sum().item<double>();
      gap_squares += (got - want).square().sum().item<double>();
      ++compared;
    } else if (golden.has("fingerprint." + name)) {
      expect_fingerprint(grad, golden.tensor("fingerprint." + name), tolerance, floor, where);
      ++compared;
    }
  }
  EXPECT_GT(compared, 0) << context << ": the reference has no gradient of any parameter";
  if (squares > 0) {
    EXPECT_LE(std::sqrt(gap_squares / squares), 5e-6) << context << ": L2 over all gradients";
  }
}

}  // namespace asterism::testing
