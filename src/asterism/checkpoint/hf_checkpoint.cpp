#include "asterism/checkpoint/hf_checkpoint.h"

#include <map>

#include "asterism/checkpoint/packed_weights.h"
#include "asterism/checkpoint/recoding.h"
#include "asterism/checkpoint/shard_writer.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/checkpoint/stored_bytes.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/model/initialize.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorRole;
using model::TensorSpec;
using Matrix = ExpertPart::Matrix;

namespace {

constexpr int64_t kStretchBytes = 1 << 20;

/// Brings the tensors of a bound checkpoint into memory.
class Loader {
 public:
  Loader(const BoundCheckpoint& bound, int64_t num_experts, const ReadOptions& options)
      : bound_(bound), num_experts_(num_experts), options_(options) {}

  at::Tensor load(const BoundTensor& bound) const {
    const TensorSpec& spec = bound.spec;
    at::Tensor result = at::empty(spec.shape, kept_type(bound, options_));
    if (bound.whole != nullptr) load_whole(spec, *bound.whole, result);
    for (const auto& [key, stored] : bound.of_expert) {
      decode(*stored, stored_matrix(bound_.source, *stored), part_of(result, spec.name, {key.first, key.second}));
    }
    if (spec.role == TensorRole::kTable) check_table(spec, bound.whole->name, result);
    return result;
  }

 private:
  void load_whole(const TensorSpec& spec, const StoredTensor& stored, const at::Tensor& result) const {
    const StoredMatrix matrix = stored_matrix(bound_.source, stored);
    if (!stored.form.is_coded() || !stored.is_packed()) {
      decode(stored, matrix, result);
      return;
    }
    const std::vector<Matrix> matrices = packed_matrices(spec.name);
    const auto count = static_cast<int64_t>(matrices.size());
    for (int64_t expert = 0; expert < spec.shape[0]; ++expert) {
      for (int64_t m = 0; m < count; ++m) {
        decode(stored, matrix.part(expert, m, count), part_of(result, spec.name, {expert, matrices[m]}));
      }
    }
  }

  // In stretches whose pages are given back at once: what is read never counts twice.
  void decode(const StoredTensor& stored, const StoredMatrix& matrix, const at::Tensor& result) const {
    const bool plain = !matrix.form.is_coded() && matrix.data.dim() > 0;
    const int64_t rows = plain ? matrix.data.size(0) : 1, bytes = static_cast<int64_t>(matrix.data.nbytes());
    const int64_t stretch = plain && bytes > 0 ? std::max<int64_t>(1, rows * kStretchBytes / bytes) : rows;
    for (int64_t row = 0; row < rows; row += stretch) {
      StoredMatrix part = matrix;
      const int64_t count = std::min(stretch, rows - row);
      if (plain) part.data = matrix.data.narrow(0, row, count);
      decode_into(part, plain ? result.narrow(0, row, count) : result);
      bound_.source.release(stored.name, part.data);
    }
    if (matrix.scale.defined()) bound_.source.release(stored.scale_name, matrix.scale);
  }

  void check_table(const TensorSpec& spec, const std::string& name, const at::Tensor& table) const {
    if (table.numel() == 0) return;
    const at::Tensor wrong = table.lt(0).logical_or(table.ge(num_experts_)).nonzero();
    if (wrong.size(0) == 0) return;
    const int64_t row = wrong[0][0].item<int64_t>(), column = wrong[0][1].item<int64_t>();
    input_error(bound_.source.file_of(name).string(), ": tensor '", name, "': expected expert ids 0 .. ",
                num_experts_ - 1, ", found ", table[row][column].item<int64_t>(), " at token ", row, ", slot ", column,
                " (", wrong.size(0), " such entries); config.json and the tensors do not belong together");
  }

  const BoundCheckpoint& bound_;
  const int64_t num_experts_;
  const ReadOptions& options_;
};

/// config.json and the files of tensors, into a folder that appears at once.
void write_folder(const fs::path& folder, const model::Config& config, const std::vector<TensorSpec>& specs,
                  const std::vector<TargetTensor>& targets, const WriteOptions& options, const FillChunk& fill,
                  int workers) {
  const ShardPlan plan = plan_shards(targets, options.max_shard_bytes);
  AtomicFolder target(folder, options.replace);
  write_text_atomically(target.staging() / "config.json", config_text(config, specs, targets, options.spelling));
  if (!plan.index.empty()) write_text_atomically(target.staging() / "model.safetensors.index.json", plan.index);
  write_planned(target.staging(), targets, plan, fill, {.workers = workers});
  target.publish();
}

/// What is packed comes in the narrowest type that holds it exactly.
at::Tensor plain_values(const ops::Matrix& weight) {
  if (!weight.packed) return weight.plain;
  return weight.packed->decode(weight.packed->scales.scalar_type() == at::kFloat ? at::kFloat : at::kBFloat16);
}

/// The tensors of a model, dense and on the CPU, in the order of their specs.
std::vector<at::Tensor> held_tensors(const model::Config& config, const model::Weights& weights) {
  std::vector<at::Tensor> held;
  model::for_each_weight(config, weights, [&](const TensorSpec& spec, const ops::Matrix& weight) {
    TORCH_CHECK(weight.defined(), "[checkpoint] expected all tensors of the model, got none for ", spec.name);
    TORCH_CHECK(weight.sizes() == spec.shape, "[checkpoint] ", spec.name, " has shape ", spec.shape, ", got ",
                weight.sizes());
    held.push_back(plain_values(weight).detach().to(at::kCPU).contiguous());
  });
  return held;
}

}  // namespace

at::ScalarType kept_type(const BoundTensor& bound, const ReadOptions& options) {
  if (bound.spec.role == TensorRole::kTable) return at::kLong;
  if (bound.spec.role == TensorRole::kMatrix) {
    return options.matrix_dtype.value_or(exact_dtype(bound.first().form));
  }
  return options.matrix_dtype == at::kDouble ? at::kDouble : at::kFloat;
}

LoadedWeights read_weights(const fs::path& folder, const model::Config& config, const ReadOptions& options) {
  TORCH_CHECK(!options.matrix_dtype || is_plain_float(*options.matrix_dtype),
              "[checkpoint] matrices are read as fp64, fp32, fp16 or bf16, got ", *options.matrix_dtype);
  TORCH_CHECK(!options.packed || !options.matrix_dtype, "[checkpoint] packed matrices have no other type");
  const at::NoGradGuard no_grad;
  const BoundCheckpoint bound = bind_checkpoint(folder, config, /*equal_experts=*/!options.matrix_dtype);
  const Loader loader(bound, config.num_experts, options);
  LoadedWeights result{.weights = {}, .notes = bound.notes};
  std::map<std::string, const BoundTensor*> left;
  for (const BoundTensor& tensor : bound.tensors) left[tensor.spec.name] = &tensor;
  if (options.packed) {
    model::for_each_projection(config, result.weights, [&](const TensorSpec& spec, model::Projection& projection) {
      const BoundTensor& tensor = *left.at(spec.name);
      const Form form = kept_form(tensor, options.storage);
      if (!form.is_coded()) return;
      projection.weight = load_packed(bound.source, tensor, form, result.rounded);
      left.erase(spec.name);
    });
  }
  model::for_each_tensor(config, result.weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    if (left.contains(spec.name)) tensor = loader.load(*left.at(spec.name));
  });
  return result;
}

void write_checkpoint(const fs::path& folder, const model::Config& config, const model::Weights& weights,
                      const WriteOptions& options) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorSpec> specs = model::tensor_specs(config);
  const std::vector<at::Tensor> held = held_tensors(config, weights);
  const auto targets = target_tensors(specs, options.spelling, [&](size_t spec) {
    return target_form(specs[spec], Form::plain(held[spec].scalar_type()), options.storage);
  });
  const int workers = default_writer_threads();
  std::vector<Recoder> recoders(workers);
  write_folder(
      folder, config, specs, targets, options,
      [&](const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, int worker) {
        const at::Tensor& tensor = held[target.spec];
        const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
        const int64_t first = first_value(specs[target.spec], target, chunk);
        recoders[worker].recode(Form::plain(tensor.scalar_type()),
                                {bytes + first * static_cast<int64_t>(tensor.element_size())}, target.form, data, scale,
                                chunk.rows, chunk.columns, /*measure=*/false);
      },
      workers);
}

void write_checkpoint(const fs::path& folder, const model::Config& config, model::SliceReader& values,
                      const WriteOptions& options) {
  const std::vector<TensorSpec> specs = model::tensor_specs(config);
  const auto type_of = [&](size_t spec) { return specs[spec].role == TensorRole::kTable ? at::kLong : at::kFloat; };
  const auto targets = target_tensors(specs, options.spelling, [&](size_t spec) {
    return target_form(specs[spec], Form::plain(type_of(spec)), options.storage);
  });
  const int workers = default_writer_threads();
  std::vector<Recoder> recoders(workers);
  write_folder(
      folder, config, specs, targets, options,
      [&](const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, int worker) {
        const TensorSpec& spec = specs[target.spec];
        const at::Tensor chunk_values = at::empty({chunk.rows * chunk.columns}, type_of(target.spec));
        values.read(spec.name, first_value(spec, target, chunk), chunk_values);
        recoders[worker].recode(Form::plain(type_of(target.spec)),
                                {static_cast<const std::byte*>(chunk_values.const_data_ptr())}, target.form, data,
                                scale, chunk.rows, chunk.columns, /*measure=*/false);
      },
      workers);
}

void write_initial_checkpoint(const fs::path& folder, const model::Config& config, uint64_t seed,
                              const WriteOptions& options) {
  const std::vector<TensorSpec> specs = model::tensor_specs(config);
  const auto targets = target_tensors(specs, options.spelling, [&](size_t spec) {
    const bool table = specs[spec].role == TensorRole::kTable;
    return target_form(specs[spec], Form::plain(table ? at::kLong : at::kFloat), options.storage);
  });
  const int workers = default_writer_threads();
  std::vector<std::vector<float>> values(workers);
  write_folder(
      folder, config, specs, targets, options,
      [&](const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, int worker) {
        const TensorSpec& spec = specs[target.spec];
        if (spec.role == TensorRole::kTable) {
          model::initial_table(config, spec, seed, chunk.row, chunk.rows, reinterpret_cast<int64_t*>(data));
          return;
        }
        const int64_t count = chunk.rows * chunk.columns;
        values[worker].resize(std::max<size_t>(values[worker].size(), count));
        model::initial_values(config, spec, seed, first_value(spec, target, chunk), count, values[worker].data());
        Recoder::encode(values[worker].data(), target.form, data, scale, chunk.rows, chunk.columns);
      },
      workers);
}

}  // namespace asterism::checkpoint
