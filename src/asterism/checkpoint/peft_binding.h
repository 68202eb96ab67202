#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "asterism/checkpoint/peft_config.h"
#include "asterism/checkpoint/peft_names.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/model/config.h"

namespace asterism::checkpoint {

/// What the tensors of an adapter file mean to a model.
struct BoundAdapter {
  Pairs pairs;                              // fp32
  std::map<std::string, at::Tensor> saved;  // of modules_to_save, by canonical name; fp32, tables int64
};

/// Binds every tensor of `source` strictly: InputError that lists all tensors which match no matrix of the model, lack
/// their partner, have another shape than matrix and rank demand, or belong to a module of modules_to_save that is not
/// there as a whole. Packed experts may be stored in PEFT's layout or with a pair for each matrix of each expert; the
/// gate and up pairs of an expert must then share their lora_A, for they are one matrix here. What is fp32 as it is
/// needed stays a view of the mapped file: not to be written to.
BoundAdapter bind_adapter(const Source& source, const AdapterConfig& adapter, const model::Config& config);

}  // namespace asterism::checkpoint
