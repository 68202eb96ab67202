#include "asterism/cli/tensor_set.h"

#include <memory>
#include <set>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

using checkpoint::CanonicalName;
using Matrix = checkpoint::ExpertPart::Matrix;

std::string part_name(const std::string& tensor, int64_t expert, Matrix matrix) {
  const char* word = matrix == Matrix::kGate ? "gate" : matrix == Matrix::kUp ? "up" : "down";
  return text(tensor, "[", expert, "].", word);
}

std::string set_name(const std::string& stored) {
  const auto name = checkpoint::canonical_name(stored);
  if (!name) return stored;
  return name->part ? part_name(name->tensor, name->part->expert, name->part->matrix) : name->tensor;
}

/// The packed tensor that "<packed>[3].gate" belongs to; "" for other names.
std::string packed_of(const std::string& name) {
  const size_t bracket = name.find('[');
  if (bracket == std::string::npos) return "";
  const std::string packed = name.substr(0, bracket);
  return checkpoint::is_packed_experts(packed) ? packed : "";
}

/// `File` is a SafetensorsFile or a Source; the tensors share it.
template <typename File>
void add_tensor(TensorSet& set, const std::shared_ptr<const File>& file, const checkpoint::TensorInfo& info,
                at::Tensor (File::*load)(const std::string&) const, const fs::path& path) {
  const std::string name = set_name(info.name);
  const auto loader = [file, load, stored = info.name] { return ((*file).*load)(stored); };
  const bool is_new = set.emplace(name, LazyTensor{info.shape, info.dtype, loader}).second;
  if (!is_new) input_error(path.string(), ": holds ", name, " twice, once as ", info.name, "; remove one");
}

TensorSet tensors_of_file(const fs::path& path) {
  const auto file = std::make_shared<const checkpoint::SafetensorsFile>(checkpoint::SafetensorsFile::open(path));
  TensorSet set;
  for (const checkpoint::TensorInfo& info : file->tensors()) {
    add_tensor(set, file, info, &checkpoint::SafetensorsFile::view, path);
  }
  return set;
}

TensorSet tensors_of_folder(const fs::path& folder) {
  const std::string stem = fs::exists(folder / "adapter_model.safetensors") ? "adapter_model" : "model";
  const auto source = std::make_shared<const checkpoint::Source>(checkpoint::Source::open(folder, stem));
  TensorSet set;
  for (const std::string& name : source->names()) {
    add_tensor(set, source, source->info(name), &checkpoint::Source::tensor, folder);
  }
  return set;
}

void split_packed(TensorSet& set, const std::string& packed) {
  const auto found = set.find(packed);
  if (found == set.end() || found->second.shape.size() != 3) return;
  const LazyTensor whole = found->second;
  set.erase(found);
  const bool is_down = packed.ends_with("down_proj");
  const std::vector<Matrix> matrices = is_down ? std::vector{Matrix::kDown} : std::vector{Matrix::kGate, Matrix::kUp};
  const int64_t rows = whole.shape[1] / static_cast<int64_t>(matrices.size());
  for (int64_t expert = 0; expert < whole.shape[0]; ++expert) {
    for (size_t m = 0; m < matrices.size(); ++m) {
      const int64_t first = static_cast<int64_t>(m) * rows;
      const auto load = [whole, expert, first, rows] { return whole.load().select(0, expert).narrow(0, first, rows); };
      set.emplace(part_name(packed, expert, matrices[m]), LazyTensor{{rows, whole.shape[2]}, whole.dtype, load});
    }
  }
}

void split_like(TensorSet& set, const TensorSet& other) {
  std::set<std::string> packed_names;
  for (const auto& [name, tensor] : other) {
    const std::string packed = packed_of(name);
    if (!packed.empty()) packed_names.insert(packed);
  }
  for (const std::string& packed : packed_names) split_packed(set, packed);
}

}  // namespace

TensorSet open_tensors(const fs::path& path) {
  if (!fs::exists(path)) input_error(path.string(), ": does not exist");
  return fs::is_directory(path) ? tensors_of_folder(path) : tensors_of_file(path);
}

void align_experts(TensorSet& a, TensorSet& b) {
  split_like(a, b);
  split_like(b, a);
}

}  // namespace asterism::cli
