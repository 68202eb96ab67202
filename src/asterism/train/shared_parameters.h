#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/parallel/sharded_model.h"
#include "asterism/train/parameters.h"

namespace asterism::train {

/// A model that ranks share, and what this rank trains of it: `parameters` are pieces, [n] each, in the order of
/// model->pieces(). A tensor's name may be here or on other ranks or on several.
struct SharedParameters {
  std::shared_ptr<parallel::ShardedModel> model;
  std::vector<Parameter> parameters;
};

/// Shares `model`, whose trained tensors are `whole` (full_parameters, lora_parameters). The whole tensors are given
/// up. InputError for what cannot be shared.
SharedParameters share_parameters(model::Model& model, std::vector<Parameter> whole, const parallel::MeshComms& comms,
                                  bool strict);

/// The trained tensors, whole, on the first rank; nothing on the others. All ranks call it.
std::map<std::string, at::Tensor> whole_values(parallel::ShardedModel& shared);

/// Lets the optimizer see the gradients of the step that has been run.
void take_gradients(const std::vector<Parameter>& parameters, const parallel::ShardedModel& shared);

}  // namespace asterism::train
