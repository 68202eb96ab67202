#pragma once

#include <map>
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
/// Matrices that are trained become fp32 masters in place, packed ones too. Everything else is marked as not trained
/// and stays as it is kept.
std::vector<Parameter> full_parameters(model::Model& model, const TrainedParts& parts);

/// Full fine-tuning: the buffers, which get memory of their own in the model.
std::vector<Parameter> full_buffers(model::Model& model);

/// LoRA: the attached pairs, and in full the tensors of `modules_to_save` (model::match_modules) except integer tables
/// and router biases; the rest of the base is frozen. InputError when such a tensor carries a pair as well, or belongs
/// to a part without a loss.
std::vector<Parameter> lora_parameters(model::Model& model, const std::vector<std::string>& modules_to_save = {},
                                       const TrainedParts& parts = {});

/// Sum of the element counts.
/// The weights of the model with other values of trained tensors, by the names of their parameters; those without a
/// value stay as they are. Shares memory.
model::Weights with_values(const model::Model& model, const std::map<std::string, at::Tensor>& values);

int64_t count_elements(const std::vector<Parameter>& parameters);

}  // namespace asterism::train
