#include "asterism/cli/tensor_set.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/checkpoint/recoding.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/checkpoint/stored_bytes.h"
#include "asterism/checkpoint/stored_tensor.h"
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

/// An opened checkpoint, shared by its tensors.
struct Opened {
  checkpoint::Source source;
  checkpoint::StoredBytes bytes;

  explicit Opened(checkpoint::Source from) : source(std::move(from)), bytes(source) {}
};

at::Tensor read_rows(const Opened& opened, const checkpoint::StoredTensor& tensor, const LazyTensor& lazy,
                     int64_t first, int64_t count) {
  const int64_t matrix = first / lazy.matrix_rows, columns = lazy.columns();
  const checkpoint::Chunk chunk{.row = first % lazy.matrix_rows, .rows = count, .columns = columns};
  const auto place = opened.bytes.place(tensor, matrix, lazy.matrix_rows, columns);
  std::vector<std::byte> data, scale;
  place.read(chunk, data, scale);
  if (!tensor.form.is_coded()) {
    at::Tensor values = at::empty({count, columns}, tensor.form.dtype);
    if (values.nbytes() > 0) std::memcpy(values.mutable_data_ptr(), data.data(), values.nbytes());
    return values;
  }
  at::Tensor values = at::empty({count, columns}, at::kFloat);
  checkpoint::Recoder::decode(tensor.form, {data.data(), scale.data()}, count, columns,
                              values.mutable_data_ptr<float>());
  return values;
}

int64_t matrices_of(const std::string& name) {
  return checkpoint::is_packed_experts(name) ? static_cast<int64_t>(checkpoint::packed_matrices(name).size()) : 1;
}

TensorSet tensors_of(checkpoint::Source source, const fs::path& path) {
  const auto opened = std::make_shared<const Opened>(std::move(source));
  checkpoint::ProblemList problems;
  const auto stored = checkpoint::stored_tensors(opened->source, problems);
  problems.throw_if_any(path.string(), "the checkpoint is damaged or incomplete");
  TensorSet set;
  for (const checkpoint::StoredTensor& tensor : stored) {
    const std::string name = set_name(tensor.name);
    LazyTensor lazy{.shape = tensor.shape, .form = tensor.form.text()};
    lazy.matrix_rows = tensor.is_packed() ? tensor.shape[1] / matrices_of(name) : std::max<int64_t>(lazy.num_rows(), 1);
    lazy.rows = [opened, tensor, shape = lazy](int64_t first, int64_t count) {
      return read_rows(*opened, tensor, shape, first, count);
    };
    const bool is_new = set.emplace(name, std::move(lazy)).second;
    if (!is_new) input_error(path.string(), ": holds ", name, " twice, once as ", tensor.name, "; remove one");
  }
  return set;
}

void split_packed(TensorSet& set, const std::string& packed) {
  const auto found = set.find(packed);
  if (found == set.end() || found->second.shape.size() != 3) return;
  const LazyTensor whole = found->second;
  set.erase(found);
  const auto matrices = checkpoint::packed_matrices(packed);
  const int64_t rows = whole.matrix_rows;
  int64_t matrix_number = 0;
  for (int64_t expert = 0; expert < whole.shape[0]; ++expert) {
    for (const Matrix matrix : matrices) {
      const int64_t before = matrix_number++ * rows;
      LazyTensor part{{rows, whole.shape[2]}, whole.form, rows, [whole, before](int64_t first, int64_t count) {
                        return whole.rows(before + first, count);
                      }};
      set.emplace(part_name(packed, expert, matrix), std::move(part));
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

int64_t LazyTensor::num_rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

TensorSet open_tensors(const fs::path& path) {
  if (!fs::exists(path)) input_error(path.string(), ": does not exist");
  if (!fs::is_directory(path)) return tensors_of(checkpoint::Source::of_file(path), path);
  const std::string stem = fs::exists(path / "adapter_model.safetensors") ? "adapter_model" : "model";
  return tensors_of(checkpoint::Source::open(path, stem), path);
}

void align_experts(TensorSet& a, TensorSet& b) {
  split_like(a, b);
  split_like(b, a);
}

}  // namespace asterism::cli
