#include "asterism/checkpoint/peft_binding.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "asterism/checkpoint/problem_list.h"
#include "asterism/core/error.h"
#include "asterism/core/shortened.h"

namespace asterism::checkpoint {
using model::TensorSpec;
using Matrix = ExpertPart::Matrix;

namespace {

constexpr std::string_view kExperts = ".mlp.experts";

const char* const kNoMatrix = "tensors that match no matrix of the model";
const char* const kNoPartner = "tensors without their partner";
const char* const kPairShape = "tensors of the wrong shape";
const char* const kPairDtype = "tensors of the wrong dtype";
const char* const kNoExpert = "matrices of experts without a pair";
const char* const kTwoPairs = "matrices with two pairs";
const char* const kTwoInputs = "experts whose gate_proj and up_proj have different lora_A";
const char* const kOldLayout = "expert matrices that older versions of PEFT lay out otherwise, with the same shape";
const char* const kNotSaved = "missing tensors of modules_to_save";

class AdapterBinder {
 public:
  AdapterBinder(const Source& source, const AdapterConfig& adapter, const model::Config& config)
      : source_(source), adapter_(adapter), specs_(projection_specs(config)) {
    try {
      for (const TensorSpec& spec : model::match_modules(config, adapter.lora.modules_to_save))
        saved_[spec.name] = spec;
    } catch (const InputError& error) {
      input_error((source.folder() / "adapter_config.json").string(), ": ", error.what());
    }
  }

  BoundAdapter bind() {
    for (const std::string& name : source_.names()) place(name);
    BoundAdapter bound;
    for (const auto& [matrix, names] : whole_) bind_whole(matrix, names, bound.pairs);
    for (const auto& [matrix, parts] : parts_) bind_parts(matrix, parts, bound.pairs);
    bind_saved(bound.saved);
    if (whole_.empty() && parts_.empty() && bound.saved.empty()) {
      problems_.add("adapters without tensors", "adapter_model.safetensors");
    }
    problems_.throw_if_any(source_.folder().string() + ": the adapter does not fit the model",
                           "check that the adapter was trained on this model and saved by PEFT 0.21 or later");
    return bound;
  }

 private:
  struct PairNames {
    std::string a, b;
  };
  using PartKey = std::pair<int64_t, Matrix>;

  void place(const std::string& name) {
    const bool is_a = name.ends_with(kLoraA), is_b = name.ends_with(kLoraB);
    PairNames* names = nullptr;
    if (name.starts_with(kAdapterRoot)) {
      const std::string path = name.substr(kAdapterRoot.size());
      if (is_a || is_b) {
        names = pair_of(path.substr(0, path.size() - kLoraA.size()));
      } else if (saved_.contains(path)) {
        return;
      }
    }
    if (names == nullptr) {
      problems_.add(kNoMatrix, name);
    } else {
      (is_a ? names->a : names->b) = name;
    }
  }

  /// The pair that a module path of the adapter stands for; nullptr when it cannot be told.
  PairNames* pair_of(const std::string& path) {
    if (const auto matrix = whole_matrix(path); matrix && specs_.contains(*matrix)) return &whole_[*matrix];
    const auto name = canonical_name(path + ".weight");
    if (!name || !name->part || !specs_.contains(name->tensor)) return nullptr;
    if (name->part->expert >= specs_.at(name->tensor).shape[0]) return nullptr;
    return &parts_[name->tensor][{name->part->expert, name->part->matrix}];
  }

  std::optional<std::string> whole_matrix(const std::string& path) const {
    if (path.ends_with(std::string(kExperts) + std::string(kInnerWrapper))) {
      return path.substr(0, path.size() - kInnerWrapper.size()) + std::string(kGateUpEnd);
    }
    if (!path.ends_with(kExperts)) return path + ".weight";
    const std::string gate_up = path + std::string(kGateUpEnd), down = path + std::string(kDownEnd);
    const std::string inner = std::string(kAdapterRoot) + path + std::string(kInnerWrapper);
    // The inner wrapper is there exactly when both parameters are adapted, and then this one is the outer.
    if (source_.contains(inner + std::string(kLoraA)) || source_.contains(inner + std::string(kLoraB))) return down;
    const bool targets_gate_up = adapter_.targets_parameter(gate_up), targets_down = adapter_.targets_parameter(down);
    if (targets_gate_up == targets_down) return std::nullopt;
    return targets_gate_up ? gate_up : down;
  }

  bool is_complete(const PairNames& names) {
    if (!names.a.empty() && !names.b.empty()) return true;
    problems_.add(kNoPartner, names.a + names.b);
    return false;
  }

  void bind_whole(const std::string& matrix, const PairNames& names, Pairs& pairs) {
    if (!is_complete(names)) return;
    if (parts_.contains(matrix)) problems_.add(kTwoPairs, matrix + ": as a whole and for single experts");
    const model::LoraConfig lora = adapter_.lora_of(pattern_path(matrix));
    const model::LoraShapes shapes = model::lora_shapes(specs_.at(matrix), lora.rank);
    check(names.a, shapes.a, lora.rank);
    check(names.b, shapes.b, lora.rank);
    // Of other shapes, the shapes tell.
    const std::vector<int64_t>& shape = specs_.at(matrix).shape;
    if (shape.size() == 3 && shape[1] == shape[2] && !adapter_.has_current_layout()) {
      const std::string version = adapter_.peft_version.empty() ? "no peft_version" : adapter_.peft_version;
      problems_.add(kOldLayout, text(names.a, ": expected peft_version 0.21 or later, found ", shortened(version)));
    }
    pairs[matrix] = {.a_RK = load(names.a), .b_NR = load(names.b), .scale = lora.scale()};
  }

  /// Lays the pairs of single experts into PEFT's layout of packed ones (ops/experts.h).
  void bind_parts(const std::string& packed, const std::map<PartKey, PairNames>& parts, Pairs& pairs) {
    const TensorSpec& spec = specs_.at(packed);
    const std::vector<Matrix> matrices = packed_matrices(packed);
    const int64_t num_experts = spec.shape[0], rows = spec.shape[1] / static_cast<int64_t>(matrices.size());
    const std::string some_path = adapter_path_of_part({packed, ExpertPart{0, matrices.front()}});
    const model::LoraConfig lora = adapter_.lora_of(some_path.substr(kAdapterRoot.size()));
    if (!fits(packed, parts, lora.rank)) return;
    at::Tensor a_RK = at::empty({num_experts * lora.rank, spec.shape[2]}, at::kFloat);
    at::Tensor b_NRE = at::empty({spec.shape[1], lora.rank, num_experts}, at::kFloat);
    for (int64_t e = 0; e < num_experts; ++e) {
      for (size_t m = 0; m < matrices.size(); ++m) {
        const PairNames& names = parts.at({e, matrices[m]});
        a_RK.narrow(0, e * lora.rank, lora.rank).copy_(source_.tensor(names.a));
        b_NRE.narrow(0, static_cast<int64_t>(m) * rows, rows).select(2, e).copy_(source_.tensor(names.b));
      }
    }
    pairs[packed] = {.a_RK = a_RK, .b_NR = b_NRE.flatten(1), .scale = lora.scale()};
  }

  /// Whether there is a pair of the right shape for each matrix of each expert, with one A for both halves of gate_up.
  bool fits(const std::string& packed, const std::map<PartKey, PairNames>& parts, int64_t rank) {
    const TensorSpec& spec = specs_.at(packed);
    const std::vector<Matrix> matrices = packed_matrices(packed);
    const int64_t num_experts = spec.shape[0], rows = spec.shape[1] / static_cast<int64_t>(matrices.size());
    bool fits = true;
    // Where the files hold next to nothing of it, a list of a billion missing experts would help nobody.
    if (num_experts > 1000 + static_cast<int64_t>(parts.size())) {
      problems_.add(kNoExpert, text(packed, ": expected ", num_experts, " experts, found ", parts.size(), " pairs"));
      return false;
    }
    for (int64_t e = 0; e < num_experts; ++e) {
      at::Tensor shared_a;
      for (const Matrix matrix : matrices) {
        const auto found = parts.find({e, matrix});
        if (found == parts.end()) {
          problems_.add(kNoExpert, adapter_path_of_part({packed, ExpertPart{e, matrix}}));
          fits = false;
        } else if (!is_complete(found->second) || !check(found->second.a, {rank, spec.shape[2]}, rank) ||
                   !check(found->second.b, {rows, rank}, rank)) {
          fits = false;
        } else {
          const at::Tensor a = source_.tensor(found->second.a);
          const bool shared = !shared_a.defined() || at::equal(a.to(at::kFloat), shared_a.to(at::kFloat));
          if (!shared) problems_.add(kTwoInputs, found->second.a);
          shared_a = a;
        }
      }
    }
    return fits;
  }

  void bind_saved(std::map<std::string, at::Tensor>& saved) {
    for (const auto& [name, spec] : saved_) {
      const std::string stored = std::string(kAdapterRoot) + name;
      if (!source_.contains(stored)) {
        problems_.add(kNotSaved, stored);
        continue;
      }
      const TensorInfo& info = source_.info(stored);
      if (info.shape != spec.shape) {
        problems_.add(kPairShape, text(stored, ": expected ", at::IntArrayRef(spec.shape), ", found ",
                                       at::IntArrayRef(info.shape)));
      }
      const bool table = spec.role == model::TensorRole::kTable;
      if (table != c10::isIntegralType(info.dtype, /*includeBool=*/false)) add_dtype(stored, info.dtype);
      saved[name] = source_.tensor(stored).to(table ? at::kLong : at::kFloat);
    }
  }

  void add_dtype(const std::string& name, at::ScalarType found) {
    problems_.add(kPairDtype, name + " " + safetensors_dtype_name(found));
  }

  bool check(const std::string& name, const std::vector<int64_t>& shape, int64_t rank) {
    const TensorInfo& info = source_.info(name);
    if (!c10::isFloatingType(info.dtype)) add_dtype(name, info.dtype);
    if (info.shape == shape) return true;
    problems_.add(kPairShape, text(name, ": expected ", at::IntArrayRef(shape), " with r = ", rank, ", found ",
                                   at::IntArrayRef(info.shape)));
    return false;
  }

  at::Tensor load(const std::string& name) const { return source_.tensor(name).to(at::kFloat); }

  const Source& source_;
  const AdapterConfig& adapter_;
  const std::map<std::string, TensorSpec> specs_;
  std::map<std::string, TensorSpec> saved_;
  std::map<std::string, PairNames> whole_;
  std::map<std::string, std::map<PartKey, PairNames>> parts_;
  ProblemList problems_;
};

}  // namespace

BoundAdapter bind_adapter(const Source& source, const AdapterConfig& adapter, const model::Config& config) {
  return AdapterBinder(source, adapter, config).bind();
}

}  // namespace asterism::checkpoint
