#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "asterism/dist/comm.h"

namespace asterism::parallel {

/// Elements begin, begin + 1, .. of a tensor that is in memory.
void read_held(const at::Tensor& whole, int64_t begin, const at::Tensor& out);

/// Tensors that the ranks of one group share: laid one after the other in two flat buffers, the trained ones and the
/// frozen ones, each cut into equal parts of which every rank keeps one. Trained tensors are fp32 (fp64); frozen ones
/// keep their types. The order of elements does not depend on the number of ranks.
class ShardedTensors {
 public:
  /// The part of a trained tensor that lies on this rank: elements [begin, begin + value.numel()) of the tensor, row by
  /// row. `value` and `grad` are views of the shard, [n].
  struct Piece {
    size_t slot = 0;
    int64_t begin = 0;
    at::Tensor value, grad;
  };

  /// Fills `out`, flat, with elements begin, begin + 1, .. of the tensor of a slot, in its type.
  using FillSlice = std::function<void(size_t slot, int64_t begin, const at::Tensor& out)>;

  ShardedTensors() = default;
  /// Tensors like `outlines` (undefined ones stay undefined), of which the trained ones require a gradient. Only shapes
  /// and types count: values come from `fill`, which is called once for each slot that is defined, the trained ones
  /// first, on every rank in the same order, for the rank's own part, which may be empty. `name` names the collectives.
  /// All ranks pass outlines of the same shapes and types.
  ShardedTensors(std::string name, const std::vector<at::Tensor>& outlines, int rank, int ranks, const FillSlice& fill);
  /// The same of tensors that are in memory.
  ShardedTensors(std::string name, const std::vector<at::Tensor>& tensors, int rank, int ranks);

  /// Begins to gather; the next `gather` waits for it. Nothing when it has begun already.
  void start_gather(dist::Comm& comm);
  /// The whole tensors: fresh memory, of which the trained ones require gradients.
  std::vector<at::Tensor> gather(dist::Comm& comm);

  /// Adds gradients to the shard: `contributions` lists of them, each in the order of the slots (undefined = none), are
  /// added one after the other, rank after rank. The shard's gradient is made of zeros first where there is none.
  /// `copies`: so many parts of the flat buffer follow each other over the ranks of `comm`, whose number is then copies
  /// x ranks: replicas then hold the same sums.
  void add_gradients(dist::Comm& comm, const std::vector<std::vector<at::Tensor>>& contributions, int copies = 1);

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Trained slots, in order.
  const std::vector<size_t>& trained() const { return trained_; }
  /// The gradient of the whole shard; undefined when none was added since the last drop.
  const at::Tensor& grad() const { return grad_; }
  /// Whether a gradient of the slot was added since the last drop: by this rank.
  const std::vector<bool>& touched() const { return touched_; }
  /// Replaces what this rank knows by what all ranks know.
  void set_touched(const std::vector<bool>& touched) { touched_ = touched; }
  void drop_gradients();

  const at::Tensor& values() const { return trained_buffer_.shard; }
  /// Memory of this rank's values.
  int64_t resident_bytes() const;

 private:
  struct Place {
    size_t slot = 0;
    int64_t offset = 0;  // in elements of the buffer
    std::vector<int64_t> shape;
    at::ScalarType type = at::kFloat;
    int64_t elements = 0;  // of the buffer
  };
  struct Buffer {
    std::vector<Place> places;
    int64_t part = 0;  // elements of each rank
    at::Tensor shard;
  };

  static void add_place(Buffer& buffer, size_t slot, const at::Tensor& tensor, at::ScalarType type);
  static void make_shard(Buffer& buffer, int rank, int ranks, at::ScalarType type, const FillSlice& fill);
  std::vector<at::Tensor> views(const Buffer& buffer, const at::Tensor& whole) const;

  std::string name_;
  int rank_ = 0, ranks_ = 1;
  size_t slots_ = 0;
  Buffer trained_buffer_, frozen_buffer_;
  std::vector<size_t> trained_;
  std::vector<Piece> pieces_;
  std::vector<bool> touched_;
  at::Tensor grad_;

  bool gathering_ = false;
  at::Tensor trained_whole_, frozen_whole_;
  dist::Pending trained_pending_, frozen_pending_;
};

}  // namespace asterism::parallel
