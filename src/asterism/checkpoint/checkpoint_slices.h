#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/stored_bytes.h"
#include "asterism/model/slices.h"

namespace asterism::checkpoint {

/// The weights that read_weights would load, in slices: what is asked for is read from the files, converted and put
/// into its place, in stretches of about a megabyte a thread. Bytes that are read: those of the elements asked for; of
/// FP8 and FP4 that become plain, those of their rows and the scales of these; of a matrix that is rounded to another
/// coded form than the files', all of it. Thread-safe.
class CheckpointSlices : public model::SliceReader {
 public:
  /// Binds the folder as read_weights does, with the same errors; reads headers only.
  CheckpointSlices(const std::filesystem::path& folder, const model::Config& config, const ReadOptions& options);

  /// All slots of the model, as outlines of what read_weights puts there.
  model::Weights outlines() const;
  const std::vector<std::string>& notes() const { return bound_.notes; }

  /// By the names of model::for_each_named_slot. Another floating type than that of the outline is what the values of
  /// the outline become in it; a packed matrix is read plain by its own name, in fp32. InputError for entries of a hash
  /// table outside 0 .. E-1; RunError for values that no code has.
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override;

  /// What ReadOptions::storage has changed of the matrices whose first value was among the codes read so far: of
  /// experts or of all others.
  RecodingLoss rounded(bool experts) const { return rounded_[experts ? 1 : 0]; }

 private:
  /// One tensor of the model: equal matrices [rows, columns], one after the other.
  struct Kept {
    const BoundTensor* bound = nullptr;
    at::ScalarType type = at::kFloat;  // while it is not packed
    bool packed = false;
    Form form = {};     // of a packed one
    int64_t parts = 1;  // matrices in an expert
    int64_t matrices = 1, rows = 1, columns = 1;
  };
  struct Recoded {
    at::Tensor codes, scales;  // bytes
  };

  Kept kept(const BoundTensor& bound) const;
  StoredPlace place_of(const Kept& kept, int64_t matrix) const;
  bool is_recoded(const Kept& kept, const StoredPlace& place) const { return !(place.form == kept.form); }
  Recoded recode(const Kept& kept, int64_t matrix, bool count);
  Recoded recoded(const Kept& kept, int64_t matrix, bool count, bool to_end);
  void read_codes(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out);
  void read_scales(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out);
  void read_values(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out);
  void read_plain(const Kept& kept, const StoredPlace& place, int64_t first, const at::Tensor& out) const;
  void check_table(const Kept& kept, int64_t begin, const at::Tensor& table) const;

  const int64_t num_experts_;
  const model::Config config_;
  const ReadOptions options_;
  const BoundCheckpoint bound_;
  const StoredBytes bytes_;
  std::unordered_map<std::string, Kept> tensors_;

  mutable std::mutex mutex_;  // of what follows
  RecodingLoss rounded_[2];
  // Scales of matrices that were rounded when their codes were read, of one tensor: they are asked for next.
  std::string recoded_name_;
  std::map<int64_t, at::Tensor> recoded_scales_;
  // The matrix that was rounded last, until its last byte is read: slices may be smaller.
  std::string last_name_;
  int64_t last_matrix_ = -1;
  Recoded last_;
};

}  // namespace asterism::checkpoint
