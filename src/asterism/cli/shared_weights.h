#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/checkpoint/checkpoint_slices.h"
#include "asterism/checkpoint/sliced_safetensors.h"
#include "asterism/model/lora.h"
#include "asterism/parallel/sharded_model.h"
#include "asterism/train/parameters.h"
#include "asterism/train/recipe.h"

namespace asterism::cli {

/// The weights of a model that ranks share, before each of them has its part: the model holds outlines, and values are
/// read slice by slice, from the checkpoint, from the adapter that the run starts from, or made, for fresh LoRA pairs.
class SharedWeights : public model::SliceReader {
 public:
  explicit SharedWeights(const train::Recipe& recipe);

  /// The configuration and outlines of all weights, without LoRA.
  model::Model outlines() const;
  /// Takes the adapter that was loaded into a model and leaves outlines in its place. Its tensors are read from its
  /// file where they lie there as they are needed, and held until drop_trained otherwise (a pair for each expert,
  /// shards).
  void hold(model::Model& model, const std::string& adapter);
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override;

  /// The buffers of full fine-tuning, whose values outlines lack, in memory.
  void load(std::vector<train::Parameter>& buffers);
  /// What model.storage has changed of the weights of the run, on rank 0; all ranks call it after all has been read.
  checkpoint::RecodingLoss rounded(const parallel::MeshComms& comms) const;
  /// What is trained is in the hands of the ranks: only buffers are read from now on.
  void drop_trained();

 private:
  model::Config config_;
  checkpoint::CheckpointSlices slices_;
  model::FreshLora fresh_;
  std::unique_ptr<checkpoint::SlicedFile> adapter_;
  std::map<std::string, std::string> stored_;  // name in the adapter's file, by slot
  std::map<std::string, at::Tensor> held_;
};

}  // namespace asterism::cli
