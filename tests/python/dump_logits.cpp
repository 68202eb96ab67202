// dump_logits MODEL ADAPTER|- IDS.json OUT.safetensors: fp32 logits [S, V] of one row of ids, for comparison with
// other implementations.

#include <iostream>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/model/model.h"

int main(int argc, char** argv) {
  using namespace asterism;
  if (argc != 5) {
    std::cerr << "usage: dump_logits MODEL ADAPTER|- IDS.json OUT.safetensors\n";
    return 2;
  }
  try {
    const at::NoGradGuard no_grad;
    const std::string folder = argv[1], adapter = argv[2];
    model::Model model;
    model.config = model::read_config(std::filesystem::path(folder) / "config.json");
    model.weights = checkpoint::read_weights(folder, model.config, {}).weights;
    if (adapter != "-") checkpoint::load_adapter(adapter, model.config, model.weights);
    const auto ids = nlohmann::json::parse(read_text(argv[3])).get<std::vector<int64_t>>();
    const at::Tensor id_T = at::tensor(ids, at::kLong);
    const auto batch = model::make_token_batch(id_T, id_T, {id_T.size(0)});
    checkpoint::write_safetensors(argv[4], {{"logits", model::forward_logits(model, batch, {}), {}}});
  } catch (const std::exception& error) {
    std::cerr << user_message(error) << "\n";
    return 1;
  }
  return 0;
}
