#include "asterism/train/shared_parameters.h"

#include <map>

#include "asterism/core/error.h"
#include "asterism/model/lora.h"

namespace asterism::train {

SharedParameters share_parameters(model::Model& model, std::vector<Parameter> whole, const parallel::MeshComms& comms,
                                  bool strict, model::SliceReader* values) {
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
  shared.model = parallel::ShardedModel::share(model, trained, comms, {.strict = strict}, values);
  for (const parallel::TrainedPiece& piece : shared.model->pieces()) {
    shared.parameters.push_back({piece.name, piece.value, decays.at(piece.name)});
  }
  return shared;
}

model::Weights adapter_outlines(const model::Model& model, const parallel::ShardedModel& shared,
                                const std::vector<std::string>& modules_to_save) {
  std::map<std::string, at::Tensor> outlines;
  for (const auto& [name, shape] : shared.trained_shapes()) {
    outlines[name] = model::outline(shape, shared.trained_type());
  }
  for (const model::TensorSpec& spec : model::match_modules(model.config, modules_to_save)) {
    if (!is_buffer(spec)) continue;
    outlines[spec.name] =
        model::outline(spec.shape, spec.role == model::TensorRole::kTable ? at::kLong : shared.trained_type());
  }
  return with_values(model, outlines);
}

void take_gradients(const std::vector<Parameter>& parameters, const parallel::ShardedModel& shared) {
  const std::vector<parallel::TrainedPiece> pieces = shared.pieces();
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor value = parameters[i].value;
    value.mutable_grad() = pieces[i].grad;
  }
}

}  // namespace asterism::train
