#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"

namespace asterism::dist {

/// Another rank failed, left or fell silent: what the ranks that did nothing wrong see. Exit code 1.
class PeerError : public RunError {
 public:
  using RunError::RunError;
};

/// A movement of bytes that has been started. It keeps its tensors alive; they may be neither read nor written until
/// wait() has returned. wait() may be called once; it throws PeerError when the movement cannot complete.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

/// How the ranks of one group move bytes between each other; sums are made on top of it (comm.h), so that they are the
/// same over every transport. All ranks of a group start the same movements in the same order and may wait for them in
/// any order. Tensors are contiguous, of any type, on the device of the transport. `what` names the movement in errors.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Part r of `output` := `input` of rank r. output holds size() times the bytes of input; input may be a part of
  /// output only when it is the caller's own.
  virtual std::unique_ptr<Work> all_gather(const at::Tensor& output, const at::Tensor& input,
                                           std::string_view what) = 0;

  /// The first input_rows[0] rows (dimension 0) of `input` go to rank 0, the next to rank 1, and so on; `output`
  /// receives output_rows[r] rows of rank r, in the order of ranks. Counts may be 0.
  virtual std::unique_ptr<Work> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<int64_t>& output_rows,
                                           const std::vector<int64_t>& input_rows, std::string_view what) = 0;

  /// `data` of every rank := `data` of rank `root`.
  virtual std::unique_ptr<Work> broadcast(const at::Tensor& data, int root, std::string_view what) = 0;

  /// The group of `members` (ranks of this group, ascending, the caller among them). Every rank of this group calls it
  /// at the same time, each with the members of its own new group; `name` is the same for all.
  virtual std::shared_ptr<Transport> subgroup(const std::vector<int>& members, const std::string& name) = 0;

  /// Ends all movements of all ranks of the run, now and later, with a PeerError that holds `reason`.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace asterism::dist
