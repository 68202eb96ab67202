#include "asterism/train/shared_parameters.h"

#include <map>

#include "asterism/core/error.h"

namespace asterism::train {

SharedParameters share_parameters(model::Model& model, std::vector<Parameter> whole, const parallel::MeshComms& comms,
                                  bool strict) {
  std::map<std::string, bool> decays;
  std::vector<parallel::TrainedTensor> trained;
  for (const Parameter& parameter : whole) {
    if (parameter.name.starts_with("mtp.")) {
      input_error(parameter.name,
                  ": the MTP layer is not trained on several ranks; set model.mtp_weight to 0, leave it ",
                  "out of lora.targets and lora.modules_to_save, or use one rank");
    }
    decays[parameter.name] = parameter.decays;
    trained.push_back({parameter.name, parameter.value});
  }
  SharedParameters shared;
  shared.model = parallel::ShardedModel::share(model, trained, comms, {.strict = strict});
  for (const parallel::TrainedPiece& piece : shared.model->pieces()) {
    shared.parameters.push_back({piece.name, piece.value, decays.at(piece.name)});
  }
  return shared;
}

std::map<std::string, at::Tensor> whole_values(parallel::ShardedModel& shared) {
  std::map<std::string, at::Tensor> values;
  const bool is_first = shared.comms().world->rank() == 0;
  const std::vector<parallel::TrainedPiece> pieces = shared.pieces();
  shared.for_each_whole([&](size_t i) { return pieces[i].value; },
                        [&](const std::string& name, const at::Tensor& whole) {
                          if (is_first) values[name] = whole.clone();
                        });
  return values;
}

void take_gradients(const std::vector<Parameter>& parameters, const parallel::ShardedModel& shared) {
  const std::vector<parallel::TrainedPiece> pieces = shared.pieces();
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor value = parameters[i].value;
    value.mutable_grad() = pieces[i].grad;
  }
}

}  // namespace asterism::train
