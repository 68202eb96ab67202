#include "asterism/checkpoint/hf_checkpoint.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorRole;
using model::TensorSpec;
using Matrix = ExpertPart::Matrix;

namespace {

const char* const kMissing = "missing tensors";
const char* const kUnknown = "unknown tensors";
const char* const kTwice = "tensors stored under two names";
const char* const kShape = "tensors of the wrong shape";
const char* const kDtype = "tensors of the wrong dtype";

std::string dims(at::IntArrayRef shape) {
  return text(shape);
}

bool is_matrix_dtype(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

bool is_quantised(const std::string& name, const TensorInfo& info) {
  const bool scale = name.ends_with(".scale") || name.ends_with(".weight_scale_inv");
  return info.dtype == at::kFloat8_e4m3fn || info.dtype == at::kFloat8_e8m0fnu || info.dtype == at::kChar ||
         info.dtype == at::kByte || (scale && !canonical_name(name));
}

/// Where the pieces of one tensor lie in the files.
struct Pieces {
  std::string whole;                                            // name of the whole tensor, or ""
  std::map<std::pair<int64_t, Matrix>, std::string> of_expert;  // names of the parts of packed experts
};

/// The matrices of one expert that make up a packed tensor, in the order of its rows.
std::vector<Matrix> matrices_of(const std::string& packed) {
  if (packed.ends_with("gate_up_proj")) return {Matrix::kGate, Matrix::kUp};
  return {Matrix::kDown};
}

/// Rows of one part within its expert: [E, 2I, D] and [E, D, I] divide evenly.
std::vector<int64_t> part_shape(const TensorSpec& spec) {
  return {spec.shape[1] / static_cast<int64_t>(matrices_of(spec.name).size()), spec.shape[2]};
}

at::Tensor part_of(const at::Tensor& packed, const std::string& name, const ExpertPart& part) {
  const int64_t rows = packed.size(1) / static_cast<int64_t>(matrices_of(name).size());
  return packed[part.expert].narrow(0, part.matrix == Matrix::kUp ? rows : 0, rows);
}

/// Binds the names of a source to the tensors of a model.
class Binder {
 public:
  Binder(const Source& source, const model::Config& config, const ReadOptions& options)
      : source_(source), config_(config), options_(options), specs_(model::tensor_specs(config)) {}

  ReadResult read() {
    refuse_quantised();
    for (const std::string& name : source_.names()) place(name);
    for (const TensorSpec& spec : specs_) check(spec);
    problems_.throw_if_any(source_.folder().string() + ": the tensors do not fit config.json", hint());
    ReadResult result;
    model::for_each_tensor(config_, result.weights,
                           [&](const TensorSpec& spec, at::Tensor& tensor) { tensor = load(spec); });
    if (!aside_.empty()) {
      result.notes.push_back(text(aside_.size(), " MTP tensors are not used (the first is ", aside_.front(), ")"));
    }
    return result;
  }

 private:
  void refuse_quantised() const {
    for (const std::string& name : source_.names()) {
      const TensorInfo& info = source_.info(name);
      if (!is_quantised(name, info)) continue;
      input_error(source_.file_of(name).string(), ": tensor '", name, "' (", safetensors_dtype_name(info.dtype),
                  ") belongs to a quantised checkpoint, expected F32, F16 or BF16; "
                  "quantised checkpoints cannot be read: convert it to bf16 first");
    }
  }

  // Finds out which tensor of the model the name belongs to.
  void place(const std::string& name) {
    const auto canonical = canonical_name(name);
    const bool mtp = name.starts_with("mtp.");
    if (mtp && (config_.num_mtp_layers == 0 || is_shared_copy(name))) {
      aside_.push_back(name);
      return;
    }
    if (!canonical || !is_known(*canonical)) {
      const std::string nearest = problems_.count(kUnknown) < 10 ? nearest_name(name, spellings()) : "";
      problems_.add(kUnknown, name + (nearest.empty() ? "" : " (the nearest name is " + nearest + ")"));
      return;
    }
    Pieces& pieces = pieces_[canonical->tensor];
    std::string& slot =
        canonical->part ? pieces.of_expert[{canonical->part->expert, canonical->part->matrix}] : pieces.whole;
    if (slot.empty()) {
      slot = name;
    } else {
      problems_.add(kTwice, slot + " and " + name);
    }
  }

  bool is_known(const CanonicalName& name) {
    if (known_.empty()) {
      for (const TensorSpec& spec : specs_) known_.insert(spec.name);
    }
    return known_.contains(name.tensor) && (!name.part || name.part->expert < config_.num_experts);
  }

  /// Every name that the model's tensors have in any spelling, of the experts those of the first.
  const std::vector<std::string>& spellings() {
    if (!spellings_.empty()) return spellings_;
    for (const TensorSpec& spec : specs_) {
      spellings_.push_back(spec.name);
      for (const Spelling spelling : {Spelling::kSavePretrained, Spelling::kNative}) {
        if (!is_packed_experts(spec.name)) {
          spellings_.push_back(stored_name(spec.name, spelling));
          continue;
        }
        for (const Matrix matrix : matrices_of(spec.name)) {
          spellings_.push_back(stored_part_name({spec.name, ExpertPart{0, matrix}}, spelling));
        }
      }
    }
    return spellings_;
  }

  void check(const TensorSpec& spec) {
    const Pieces& pieces = pieces_[spec.name];
    if (!pieces.whole.empty() && !pieces.of_expert.empty()) {
      problems_.add(kTwice, pieces.whole + " and " + pieces.of_expert.begin()->second);
    } else if (!pieces.whole.empty()) {
      check_stored(spec, pieces.whole, spec.shape);
    } else if (pieces.of_expert.empty()) {
      problems_.add(kMissing, spec.name + " " + dims(spec.shape));
      missing_mtp_ += spec.name.starts_with("mtp.") ? 1 : 0;
    } else {
      check_experts(spec, pieces);
    }
  }

  void check_experts(const TensorSpec& spec, const Pieces& pieces) {
    const at::ScalarType first = source_.info(pieces.of_expert.begin()->second).dtype;
    for (int64_t expert = 0; expert < config_.num_experts; ++expert) {
      for (const Matrix matrix : matrices_of(spec.name)) {
        const auto found = pieces.of_expert.find({expert, matrix});
        if (found == pieces.of_expert.end()) {
          const CanonicalName part{spec.name, ExpertPart{expert, matrix}};
          problems_.add(kMissing, stored_part_name(part, Spelling::kSavePretrained) + " " + dims(part_shape(spec)));
          continue;
        }
        check_stored(spec, found->second, part_shape(spec));
        const at::ScalarType dtype = source_.info(found->second).dtype;
        if (!options_.matrix_dtype && dtype != first) {
          problems_.add(kDtype, text(found->second, ": expected ", safetensors_dtype_name(first),
                                     " as in the other experts, found ", safetensors_dtype_name(dtype)));
        }
      }
    }
  }

  void check_stored(const TensorSpec& spec, const std::string& name, const std::vector<int64_t>& shape) {
    const TensorInfo& info = source_.info(name);
    if (info.shape != shape)
      problems_.add(kShape, text(name, ": expected ", dims(shape), ", found ", dims(info.shape)));
    const bool table = spec.role == TensorRole::kTable;
    const bool fits = table ? info.dtype == at::kLong || info.dtype == at::kInt : is_matrix_dtype(info.dtype);
    if (!fits) {
      problems_.add(kDtype, text(name, ": expected ", table ? "I64 or I32" : "F32, F16 or BF16", ", found ",
                                 safetensors_dtype_name(info.dtype)));
    }
  }

  std::string hint() const {
    if (missing_mtp_ > 0 && missing_mtp_ == problems_.count(kMissing)) {
      return "the checkpoint has no complete MTP layer: set num_nextn_predict_layers to 0 in config.json, "
             "or take a checkpoint with mtp.*";
    }
    return "check that config.json and the tensors belong to the same checkpoint";
  }

  at::ScalarType target_dtype(const TensorSpec& spec, at::ScalarType stored) const {
    if (spec.role == TensorRole::kTable) return at::kLong;
    if (spec.role == TensorRole::kMatrix) return options_.matrix_dtype.value_or(stored);
    return options_.matrix_dtype == at::kDouble ? at::kDouble : at::kFloat;
  }

  at::Tensor load(const TensorSpec& spec) const {
    const Pieces& pieces = pieces_.at(spec.name);
    const std::string& first = pieces.whole.empty() ? pieces.of_expert.begin()->second : pieces.whole;
    at::Tensor result = at::empty(spec.shape, target_dtype(spec, source_.info(first).dtype));
    if (!pieces.whole.empty()) result.copy_(source_.tensor(pieces.whole));
    for (const auto& [key, name] : pieces.of_expert) {
      part_of(result, spec.name, {key.first, key.second}).copy_(source_.tensor(name));
    }
    if (spec.role == TensorRole::kTable) check_table(spec, pieces.whole, result);
    return result;
  }

  void check_table(const TensorSpec& spec, const std::string& name, const at::Tensor& table) const {
    if (table.numel() == 0) return;
    const at::Tensor wrong = table.lt(0).logical_or(table.ge(config_.num_experts)).nonzero();
    if (wrong.size(0) == 0) return;
    const int64_t row = wrong[0][0].item<int64_t>(), column = wrong[0][1].item<int64_t>();
    input_error(source_.file_of(name).string(), ": tensor '", name, "': expected expert ids 0 .. ",
                config_.num_experts - 1, ", found ", table[row][column].item<int64_t>(), " at token ", row, ", slot ",
                column, " (", wrong.size(0), " such entries); config.json and the tensors do not belong together");
  }

  const Source& source_;
  const model::Config& config_;
  const ReadOptions& options_;
  const std::vector<TensorSpec> specs_;
  std::set<std::string> known_;
  std::vector<std::string> spellings_;
  std::map<std::string, Pieces> pieces_;
  std::vector<std::string> aside_;
  size_t missing_mtp_ = 0;
  ProblemList problems_;
};

// One tensor as the spelling stores it: packed experts become one matrix per expert outside the module spelling.
void append_stored(const TensorSpec& spec, const at::Tensor& tensor, const WriteOptions& options,
                   std::vector<NamedTensor>& stored) {
  TORCH_CHECK(tensor.defined(), "[checkpoint] expected all tensors of the model, got none for ", spec.name);
  TORCH_CHECK(tensor.sizes() == at::IntArrayRef(spec.shape), "[checkpoint] ", spec.name, " has shape ", spec.shape,
              ", got ", tensor.sizes());
  const auto dtype = spec.role == TensorRole::kMatrix ? options.matrix_dtype : std::nullopt;
  if (!is_packed_experts(spec.name) || options.spelling == Spelling::kModule) {
    stored.push_back({stored_name(spec.name, options.spelling), tensor, dtype});
    return;
  }
  for (int64_t expert = 0; expert < tensor.size(0); ++expert) {
    for (const Matrix matrix : matrices_of(spec.name)) {
      const ExpertPart part{expert, matrix};
      stored.push_back(
          {stored_part_name({spec.name, part}, options.spelling), part_of(tensor, spec.name, part), dtype});
    }
  }
}

// The name that transformers gives a dtype in config.json.
std::string config_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

}  // namespace

ReadResult read_weights(const fs::path& folder, const model::Config& config, const ReadOptions& options) {
  TORCH_CHECK(!options.matrix_dtype || is_matrix_dtype(*options.matrix_dtype),
              "[checkpoint] matrices are read as fp64, fp32, fp16 or bf16, got ", *options.matrix_dtype);
  const at::NoGradGuard no_grad;
  const Source source = Source::open(folder);
  return Binder(source, config, options).read();
}

void write_checkpoint(const fs::path& folder, const model::Config& config, const model::Weights& weights,
                      const WriteOptions& options) {
  const at::NoGradGuard no_grad;
  model::Weights handles = weights;  // the visitor takes slots that it may change; handles share the memory
  std::vector<NamedTensor> stored;
  model::for_each_tensor(config, handles, [&](const TensorSpec& spec, at::Tensor& tensor) {
    append_stored(spec, tensor, options, stored);
  });
  auto json = model::config_to_json(config);
  json.erase("torch_dtype");
  json["dtype"] = config_dtype(options.matrix_dtype.value_or(weights.embed.scalar_type()));
  json["num_nextn_predict_layers"] = config.num_mtp_layers;

  AtomicFolder target(folder, options.replace);
  write_text_atomically(target.staging() / "config.json", json.dump(2) + "\n");
  write_shards(target.staging(), stored, options.max_shard_bytes);
  target.publish();
}

}  // namespace asterism::checkpoint
