#include "asterism/checkpoint/stored_tensor.h"

#include <map>

#include "asterism/checkpoint/names.h"
#include "asterism/core/error.h"
#include "asterism/ops/dequant.h"

namespace asterism::checkpoint {

namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp4Block = 32;
constexpr const char* kScaleEndings[] = {".scale", ".weight_scale_inv", "_scale_inv"};

int64_t blocks_of(int64_t size) {
  return (size + kFp8Block - 1) / kFp8Block;
}

bool is_byte(at::ScalarType type) {
  return type == at::kChar || type == at::kByte;
}

/// The tensor whose scales the name says it holds, or "". Names of real tensors (attn_hc.scale) are no scales.
std::string scaled_tensor(const std::string& name) {
  if (canonical_name(name)) return "";
  for (const std::string ending : kScaleEndings) {
    if (!name.ends_with(ending)) continue;
    const std::string stem = name.substr(0, name.size() - ending.size());
    return ending == "_scale_inv" ? stem : stem + ".weight";
  }
  return "";
}

bool is_scale_dtype(at::ScalarType type) {
  return type == at::kFloat8_e8m0fnu || type == at::kFloat || type == at::kByte;
}

/// Matrices above each other in one expert of packed experts.
int64_t matrices_in(const std::string& name) {
  const auto canonical = canonical_name(name);
  if (!canonical || canonical->part || !is_packed_experts(canonical->tensor)) return 1;
  return static_cast<int64_t>(packed_matrices(canonical->tensor).size());
}

class Pairing {
 public:
  Pairing(const Source& source, ProblemList& problems) : source_(source), problems_(problems) {}

  std::vector<StoredTensor> run() {
    for (const std::string& name : source_.names()) sort(name);
    std::vector<StoredTensor> tensors;
    for (const std::string& name : weights_) tensors.push_back(pair(name));
    for (const auto& [weight, scales] : scales_) {
      for (const std::string& scale : scales) unused(weight, scale);
    }
    return tensors;
  }

 private:
  void sort(const std::string& name) {
    const std::string weight = scaled_tensor(name);
    // Beside no weight, in a name that no model has, "scale" may mean anything.
    if (weight.empty() || (!source_.contains(weight) && !canonical_name(weight))) {
      weights_.push_back(name);
    } else {
      scales_[weight].push_back(name);
    }
  }

  StoredTensor pair(const std::string& name) {
    const TensorInfo& info = source_.info(name);
    StoredTensor tensor{.name = name, .form = Form::plain(info.dtype), .shape = info.shape};
    const bool matrix = info.shape.size() == 2 || info.shape.size() == 3;
    if (!matrix || (info.dtype != at::kFloat8_e4m3fn && !is_byte(info.dtype))) return tensor;
    const auto found = scales_.find(name);
    if (found == scales_.end()) {
      if (canonical_name(name)) {
        problems_.add("weights without scales", text(name, " (", safetensors_dtype_name(info.dtype), ")"));
      }
      return tensor;
    }
    if (found->second.size() > 1) {
      problems_.add("scales stored under two names", found->second[0] + " and " + found->second[1]);
    }
    code(tensor, info, found->second[0]);
    scales_.erase(found);
    return tensor;
  }

  void code(StoredTensor& tensor, const TensorInfo& info, const std::string& scale_name) {
    const TensorInfo& scale = source_.info(scale_name);
    tensor.scale_name = scale_name;
    if (!is_scale_dtype(scale.dtype)) {
      problems_.add("scales of the wrong dtype",
                    text(scale_name, ": expected F8_E8M0, F32 or U8, found ", safetensors_dtype_name(scale.dtype)));
      return;
    }
    const at::ScalarType scale_dtype = scale.dtype == at::kFloat ? at::kFloat : at::kFloat8_e8m0fnu;
    const Form fp8{Form::Coding::kFp8, info.dtype, scale_dtype}, fp4{Form::Coding::kFp4, info.dtype, scale_dtype};
    std::vector<int64_t> unpacked = info.shape;
    unpacked.back() *= 2;
    const auto fp8_scales = fp8.scale_shape(info.shape, matrices_in(info.name));
    const auto fp4_scales = fp4.scale_shape(unpacked);
    const bool may_be_fp4 = is_byte(info.dtype) && scale_dtype == at::kFloat8_e8m0fnu && unpacked.back() % 32 == 0;
    if (may_be_fp4 && scale.shape == fp4_scales) {
      tensor.form = fp4;
      tensor.shape = unpacked;
    } else if (scale.shape == fp8_scales) {
      tensor.form = fp8;
    } else {
      const std::string or_fp4 =
          is_byte(info.dtype) ? text(" (FP4, 32 columns each, F8_E8M0) or ", at::IntArrayRef(fp8_scales)) : "";
      problems_.add("scales of the wrong shape",
                    text(scale_name, ": expected ", at::IntArrayRef(is_byte(info.dtype) ? fp4_scales : fp8_scales),
                         or_fp4, " (FP8, 128 x 128 blocks) for ", at::IntArrayRef(info.shape), ", found ",
                         safetensors_dtype_name(scale.dtype), " ", at::IntArrayRef(scale.shape)));
    }
  }

  void unused(const std::string& weight, const std::string& scale) {
    if (!source_.contains(weight)) {
      problems_.add("scales without a weight", text(scale, " (expected ", weight, ")"));
      return;
    }
    problems_.add("scales of weights that have none",
                  text(scale, " (", weight, " is ", safetensors_dtype_name(source_.info(weight).dtype), ")"));
  }

  const Source& source_;
  ProblemList& problems_;
  std::vector<std::string> weights_;
  std::map<std::string, std::vector<std::string>> scales_;  // by the weight's name
};

at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.view(at::kByte);
}

}  // namespace

bool Form::operator==(const Form& other) const {
  if (coding != other.coding) return false;
  return is_coded() ? scale == other.scale : dtype == other.dtype;
}

std::string Form::text() const {
  if (!is_coded()) return safetensors_dtype_name(dtype);
  const std::string code = coding == Coding::kFp8 ? "FP8" : "FP4";
  return scale == at::kFloat ? code + " (F32 scales)" : code;
}

std::vector<int64_t> Form::stored_shape(std::vector<int64_t> shape) const {
  if (coding == Coding::kFp4) shape.back() /= 2;
  return shape;
}

std::vector<int64_t> Form::scale_shape(std::vector<int64_t> shape, int64_t matrices) const {
  int64_t &rows = shape[shape.size() - 2], &columns = shape.back();
  if (coding == Coding::kFp4) {
    columns /= kFp4Block;
  } else {
    rows = matrices * blocks_of(rows / matrices);
    columns = blocks_of(columns);
  }
  return shape;
}

std::vector<StoredTensor> stored_tensors(const Source& source, ProblemList& problems) {
  return Pairing(source, problems).run();
}

StoredMatrix StoredMatrix::part(int64_t expert, int64_t matrix, int64_t matrices) const {
  const auto slice = [&](const at::Tensor& packed) {
    const int64_t rows = packed.size(1) / matrices;
    return packed[expert].narrow(0, matrix * rows, rows);
  };
  return {form, slice(data), scale.defined() ? slice(scale) : scale};
}

StoredMatrix stored_matrix(const Source& source, const StoredTensor& tensor) {
  const at::Tensor data = source.tensor(tensor.name);
  if (!tensor.form.is_coded()) return {tensor.form, data, {}};
  const at::Tensor scale = source.tensor(tensor.scale_name);
  return {tensor.form, as_bytes(data), tensor.form.scale == at::kFloat ? scale : as_bytes(scale)};
}

void decode_into(const StoredMatrix& stored, const at::Tensor& out) {
  if (!stored.form.is_coded()) {
    out.copy_(stored.data);
    return;
  }
  const at::ScalarType type = out.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
  const auto decode = stored.form.coding == Form::Coding::kFp8 ? ops::dequant_fp8 : ops::dequant_fp4;
  out.copy_(decode(stored.data, stored.scale, type));
}

bool is_plain_float(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

at::ScalarType exact_dtype(const Form& form) {
  if (!form.is_coded()) return form.dtype;
  return form.scale == at::kFloat ? at::kFloat : at::kBFloat16;
}

}  // namespace asterism::checkpoint
