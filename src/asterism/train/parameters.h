#pragma once

#include <string>
#include <vector>

#include "asterism/model/model.h"

namespace asterism::train {

/// A trained tensor: the fp32 master (fp64 in tests), a leaf that collects its gradient.
struct Parameter {
  std::string name;  // canonical; LoRA matrices are path + ".lora_A.weight" and ".lora_B.weight"
  at::Tensor value;
  bool decays = false;  // decoupled weight decay: two or more dimensions, and not a position bias
};

struct TrainedParts {
  bool indexer = false;  // its KL loss is on
  bool mtp = false;      // the MTP loss is on
};

/// Hash tables and router biases: no gradient trains them, and they are nonetheless part of what was learned.
bool is_buffer(const model::TensorSpec& spec);
/// Whether full fine-tuning trains a tensor, as full_parameters says.
bool is_trained(const model::TensorSpec& spec, const TrainedParts& parts);

/// Full fine-tuning: every tensor of the model except integer tables, router biases, and the parts without a loss.
/// Matrices that are trained become fp32 masters in place. Everything else is marked as not trained.
std::vector<Parameter> full_parameters(model::Model& model, const TrainedParts& parts);

/// Full fine-tuning: the buffers, which get memory of their own in the model.
std::vector<Parameter> full_buffers(model::Model& model);

/// LoRA: the attached pairs only; the base is frozen.
std::vector<Parameter> lora_parameters(model::Model& model);

/// Sum of the element counts.
int64_t count_elements(const std::vector<Parameter>& parameters);

}  // namespace asterism::train
