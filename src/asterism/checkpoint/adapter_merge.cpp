#include "asterism/checkpoint/adapter_merge.h"

#include <algorithm>

#include "asterism/checkpoint/fingerprint.h"
#include "asterism/checkpoint/problem_list.h"
#include "asterism/ops/cpu/low_rank_kernel.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

void check_finite(const fs::path& folder, const BoundAdapter& tensors) {
  ProblemList problems;
  const auto check = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.isfinite().all().item<bool>()) problems.add("tensors with NaN or infinities", name);
  };
  for (const auto& [name, pair] : tensors.pairs) {
    check(name + std::string(kLoraA), pair.a_RK);
    check(name + std::string(kLoraB), pair.b_NR);
  }
  for (const auto& [name, tensor] : tensors.saved) check(name, tensor);
  problems.throw_if_any(folder.string() + ": the adapter is damaged", "take the adapter of an earlier step");
}

}  // namespace

AdapterMerge::AdapterMerge(const fs::path& folder, const model::Config& config)
    : adapter_(read_adapter(folder, config)) {
  check_finite(folder, adapter_.tensors);
  mark_ = adapter_fingerprint(folder);
}

bool AdapterMerge::edits(const std::string& tensor) const {
  return adapter_.tensors.pairs.contains(tensor) || adapter_.tensors.saved.contains(tensor);
}

void AdapterMerge::apply(const EditedRows& rows, float* values, float* change) const {
  const auto saved = adapter_.tensors.saved.find(rows.spec.name);
  if (saved != adapter_.tensors.saved.end()) {
    const float* replacement = saved->second.const_data_ptr<float>() + rows.first;
    for (int64_t i = 0; i < rows.count(); ++i) change[i] = replacement[i] - values[i];
    std::copy_n(replacement, rows.count(), values);
  }
  const auto found = adapter_.tensors.pairs.find(rows.spec.name);
  if (found == adapter_.tensors.pairs.end()) return;
  const ops::LoraPair& pair = found->second;
  const auto& shape = rows.spec.shape;
  const int64_t experts = shape.size() == 3 ? shape[0] : 1, height = shape[shape.size() - 2];
  const int64_t rank = pair.a_RK.size(0) / experts;
  const int64_t row = rows.first / rows.columns, expert = row / height;
  // Packed experts: A one expert after the other, B with the expert as the fastest index (ops/experts.h).
  const int64_t b_row = rank * experts;
  const ops::cpu::LowRankRows update = {
      .a = pair.a_RK.const_data_ptr<float>() + expert * rank * rows.columns,
      .b = pair.b_NR.const_data_ptr<float>() + (row - expert * height) * b_row + expert,
      .rank = rank,
      .b_row = b_row,
      .b_step = experts,
      .scale = pair.scale,
      .rows = rows.rows,
      .columns = rows.columns,
  };
  ops::cpu::add_low_rank_rows(update, values, change);
}

void AdapterMerge::replace_entries(const EditedRows& rows, int64_t* entries) const {
  const at::Tensor& table = adapter_.tensors.saved.at(rows.spec.name);
  std::copy_n(table.const_data_ptr<int64_t>() + rows.first, rows.count(), entries);
}

}  // namespace asterism::checkpoint
