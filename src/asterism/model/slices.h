#pragma once

#include <functional>
#include <string>

#include "asterism/model/weights.h"

namespace asterism::model {

/// Values of tensors that are not in memory as a whole. In the slots of a model such tensors are outlines: tensors on
/// the meta device, with shape and type alone.
class SliceReader {
 public:
  virtual ~SliceReader() = default;

  /// Fills `out`, flat, contiguous and on the CPU, with elements begin, begin + 1, .. of the tensor `name`, row by row,
  /// in the type of `out`. `out` may be empty. Where ranks read together, all call it with the same names in the same
  /// order.
  virtual void read(const std::string& name, int64_t begin, const at::Tensor& out) = 0;
};

/// Calls `visit` for every tensor that a model holds, LoRA matrices, codes and scales included, with a name of its own:
/// that of the tensor; that of the packed matrix + ".codes" or ".scales"; the path of the projection +
/// ".lora_A.weight" or ".lora_B.weight". Undefined slots are left out.
using NamedSlotVisitor = std::function<void(const std::string& name, at::Tensor& slot)>;
void for_each_named_slot(const Config& config, Weights& weights, const NamedSlotVisitor& visit);

/// What the names of slots end in.
inline constexpr const char* kCodesEnd = ".codes";
inline constexpr const char* kScalesEnd = ".scales";
inline constexpr const char* kLoraAEnd = ".lora_A.weight";
inline constexpr const char* kLoraBEnd = ".lora_B.weight";

/// An outline of this shape and type.
at::Tensor outline(at::IntArrayRef shape, at::ScalarType type);
/// Whether a weight stands for one that is not in memory.
bool is_outline(const ops::Matrix& weight);

}  // namespace asterism::model
