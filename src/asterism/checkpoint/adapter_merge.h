#pragma once

#include <filesystem>
#include <string>

#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/value_edit.h"

namespace asterism::checkpoint {

/// An adapter merged into the weights: W + scale * B A, for each expert of packed experts by itself, and the tensors of
/// modules_to_save in place of the model's. Sums are formed in fp64 and rounded once to fp32, so that the result does
/// not depend on how it is cut into chunks.
class AdapterMerge : public ValueEdit {
 public:
  /// Reads the adapter as read_adapter does, with its errors; InputError too for numbers that are not finite.
  AdapterMerge(const std::filesystem::path& folder, const model::Config& config);

  const Adapter& adapter() const { return adapter_; }

  /// The adapter's fingerprint (fingerprint.h).
  nlohmann::ordered_json mark() const override { return mark_; }
  bool edits(const std::string& tensor) const override;
  void apply(const EditedRows& rows, float* values, float* change) const override;
  void replace_entries(const EditedRows& rows, int64_t* entries) const override;

 private:
  nlohmann::ordered_json mark_;
  Adapter adapter_;
};

}  // namespace asterism::checkpoint
