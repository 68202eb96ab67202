#include "asterism/checkpoint/binding.h"

#include <unordered_map>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/core/error.h"

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

class Binder {
 public:
  Binder(const fs::path& folder, const model::Config& config, bool equal_experts)
      : config_(config), equal_experts_(equal_experts), result_{Source::open(folder), {}, {}, {}} {}

  BoundCheckpoint run() {
    for (TensorSpec& spec : model::tensor_specs(config_)) result_.tensors.push_back({std::move(spec), nullptr, {}});
    for (BoundTensor& bound : result_.tensors) known_[bound.spec.name] = &bound;
    result_.stored = stored_tensors(result_.source, problems_);
    for (const StoredTensor& tensor : result_.stored) place(tensor);
    for (const BoundTensor& bound : result_.tensors) check(bound);
    problems_.throw_if_any(result_.source.folder().string() + ": the tensors do not fit config.json", hint());
    result_.notes.push_back(announcement());
    if (!aside_.empty()) {
      result_.notes.push_back(text(aside_.size(), " MTP tensors are not used (the first is ", aside_.front(), ")"));
    }
    return std::move(result_);
  }

 private:
  // Finds out which tensor of the model the name belongs to.
  void place(const StoredTensor& tensor) {
    const std::string& name = tensor.name;
    const auto canonical = canonical_name(name);
    const bool mtp = name.starts_with("mtp.") || name.starts_with("model.mtp.");
    if (mtp && (config_.num_mtp_layers == 0 || is_shared_copy(name))) {
      aside_.push_back(name);
      return;
    }
    if (!canonical || !is_known(*canonical)) {
      const std::string nearest = problems_.count(kUnknown) < 10 ? nearest_name(name, spellings()) : "";
      problems_.add(kUnknown, name + (nearest.empty() ? "" : " (the nearest name is " + nearest + ")"));
      return;
    }
    BoundTensor& bound = *known_.at(canonical->tensor);
    const StoredTensor*& slot =
        canonical->part ? bound.of_expert[{canonical->part->expert, canonical->part->matrix}] : bound.whole;
    if (slot == nullptr) {
      slot = &tensor;
    } else {
      problems_.add(kTwice, slot->name + " and " + name);
    }
  }

  bool is_known(const CanonicalName& name) const {
    return known_.contains(name.tensor) && (!name.part || name.part->expert < config_.num_experts);
  }

  /// Every name that the model's tensors have in any spelling, of the experts those of the first.
  const std::vector<std::string>& spellings() {
    if (!spellings_.empty()) return spellings_;
    for (const BoundTensor& bound : result_.tensors) {
      const TensorSpec& spec = bound.spec;
      spellings_.push_back(spec.name);
      for (const Spelling spelling : {Spelling::kSavePretrained, Spelling::kNative}) {
        if (!is_packed_experts(spec.name)) {
          spellings_.push_back(stored_name(spec.name, spelling));
          continue;
        }
        for (const Matrix matrix : packed_matrices(spec.name)) {
          spellings_.push_back(stored_part_name({spec.name, ExpertPart{0, matrix}}, spelling));
        }
      }
    }
    return spellings_;
  }

  void check(const BoundTensor& bound) {
    const TensorSpec& spec = bound.spec;
    if (bound.whole != nullptr && !bound.of_expert.empty()) {
      problems_.add(kTwice, bound.whole->name + " and " + bound.of_expert.begin()->second->name);
    } else if (bound.whole != nullptr) {
      check_stored(spec, *bound.whole, spec.shape);
    } else if (bound.empty()) {
      problems_.add(kMissing, spec.name + " " + dims(spec.shape));
      missing_mtp_ += spec.name.starts_with("mtp.") ? 1 : 0;
    } else {
      check_experts(bound);
    }
  }

  void check_experts(const BoundTensor& bound) {
    const TensorSpec& spec = bound.spec;
    const Form& first = bound.first().form;
    // Where the files hold next to nothing of it, a list of a billion missing experts would help nobody.
    if (config_.num_experts > 1000 + static_cast<int64_t>(bound.of_expert.size())) {
      problems_.add(kMissing, text(spec.name, ": expected ", config_.num_experts, " experts, found ",
                                   bound.of_expert.size(), " matrices"));
      return;
    }
    for (int64_t expert = 0; expert < config_.num_experts; ++expert) {
      for (const Matrix matrix : packed_matrices(spec.name)) {
        const auto found = bound.of_expert.find({expert, matrix});
        if (found == bound.of_expert.end()) {
          const CanonicalName part{spec.name, ExpertPart{expert, matrix}};
          problems_.add(kMissing, stored_part_name(part, Spelling::kSavePretrained) + " " + dims(part_shape(spec)));
          continue;
        }
        const StoredTensor& stored = *found->second;
        check_stored(spec, stored, part_shape(spec));
        if (equal_experts_ && !(stored.form == first)) {
          problems_.add(kDtype, text(stored.name, ": expected ", first.text(), " as in the other experts, found ",
                                     stored.form.text()));
        }
      }
    }
  }

  void check_stored(const TensorSpec& spec, const StoredTensor& stored, const std::vector<int64_t>& shape) {
    if (stored.shape != shape) {
      const std::string values = stored.form.is_coded() ? " values" : "";
      problems_.add(kShape,
                    text(stored.name, ": expected ", dims(shape), values, ", found ", dims(stored.shape), values));
    }
    const at::ScalarType dtype = stored.form.dtype;
    const bool table = spec.role == TensorRole::kTable, matrix = spec.role == TensorRole::kMatrix;
    const bool fits =
        table ? dtype == at::kLong || dtype == at::kInt : is_plain_float(dtype) || (matrix && stored.form.is_coded());
    if (!fits) {
      problems_.add(kDtype, text(stored.name, ": expected ",
                                 table    ? "I64 or I32"
                                 : matrix ? "F32, F16 or BF16, or FP8 or FP4 with scales"
                                          : "F32, F16 or BF16",
                                 ", found ", stored.form.text()));
    }
  }

  /// What was detected, and from what: the log shows it before anything depends on it.
  std::string announcement() const {
    std::map<std::string, int64_t> experts, others;
    for (const BoundTensor& bound : result_.tensors) {
      if (bound.spec.role != TensorRole::kMatrix) continue;
      auto& counts = is_packed_experts(bound.spec.name) ? experts : others;
      if (bound.whole != nullptr) ++counts[bound.whole->form.text()];
      for (const auto& [key, stored] : bound.of_expert) ++counts[stored->form.text()];
    }
    const auto list = [](const std::map<std::string, int64_t>& counts) {
      std::string line;
      for (const auto& [form, count] : counts) line += text(line.empty() ? "" : ", ", form, " x ", count);
      return line;
    };
    return text(result_.source.folder().string(), ": ", describe_spelling(result_.source.names()),
                "; expert matrices: ", list(experts), "; other matrices: ", list(others));
  }

  std::string hint() const {
    if (missing_mtp_ > 0 && missing_mtp_ == problems_.count(kMissing)) {
      return "the checkpoint has no complete MTP layer: set num_nextn_predict_layers to 0 in config.json, "
             "or take a checkpoint with mtp.*";
    }
    return "check that config.json and the tensors belong to the same checkpoint";
  }

  const model::Config& config_;
  const bool equal_experts_;
  BoundCheckpoint result_;
  ProblemList problems_;
  std::unordered_map<std::string, BoundTensor*> known_;
  std::vector<std::string> spellings_;
  std::vector<std::string> aside_;
  size_t missing_mtp_ = 0;
};

}  // namespace

std::vector<int64_t> part_shape(const TensorSpec& spec) {
  return {spec.shape[1] / static_cast<int64_t>(packed_matrices(spec.name).size()), spec.shape[2]};
}

at::Tensor part_of(const at::Tensor& packed, const std::string& name, const ExpertPart& part) {
  const int64_t rows = packed.size(1) / static_cast<int64_t>(packed_matrices(name).size());
  return packed[part.expert].narrow(0, part.matrix == Matrix::kUp ? rows : 0, rows);
}

BoundCheckpoint bind_checkpoint(const fs::path& folder, const model::Config& config, bool equal_experts) {
  return Binder(folder, config, equal_experts).run();
}

}  // namespace asterism::checkpoint
