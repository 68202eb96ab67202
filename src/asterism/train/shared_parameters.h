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
/// up. Outlines are read from `values` (ShardedModel::share). InputError for what cannot be shared.
SharedParameters share_parameters(model::Model& model, std::vector<Parameter> whole, const parallel::MeshComms& comms,
                                  bool strict, model::SliceReader* values = nullptr);

/// The weights of an adapter of the shared model as outlines: pairs, and the tensors of `modules_to_save`.
model::Weights adapter_outlines(const model::Model& model, const parallel::ShardedModel& shared,
                                const std::vector<std::string>& modules_to_save);

/// Lets the optimizer see the gradients of the step that has been run.
void take_gradients(const std::vector<Parameter>& parameters, const parallel::ShardedModel& shared);

}  // namespace asterism::train
