#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/dist/transport.h"

namespace asterism::dist {

enum class Reduction { kSum, kMax };

/// What the collectives of one kind and name did on this rank.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes_sent = 0;        // to other ranks, payload only
  double wait_seconds = 0.0;     // time that the caller stood still
  double overlap_seconds = 0.0;  // between start and wait: the caller computed while bytes were on their way, or there
};

/// A collective that has been started; see Work for what its tensors may be used for. Must be waited for.
class Pending {
 public:
  Pending() = default;  // nothing was started; wait() returns at once
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  void wait();

 private:
  friend class Comm;
  std::unique_ptr<Work> work_;
  std::function<void()> finish_;  // what is left to do with the bytes that came
  Traffic* traffic_ = nullptr;
  std::chrono::steady_clock::time_point started_ = {};
};

/// The ranks of one group. Every rank calls the same functions in the same order with tensors of agreeing sizes; `what`
/// names the call ("layer 3 experts: dispatch") and is the same on all ranks. All sums are made in the order of ranks
/// and in fp32 or wider, whatever the transport: bitwise repeatable. Nothing is ever averaged.
/// Errors: TORCH_CHECK for tensors of a wrong kind, before anything moves; PeerError naming rank, group, position and
/// collective when another rank failed, left or fell silent.
class Comm {
 public:
  /// `name` is that of the group in messages: "world", "expert", "shard", "replicate".
  Comm(std::shared_ptr<Transport> transport, std::string name);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const std::string& name() const { return name_; }

  /// x := reduction over all ranks, in place. x contiguous, of fp32, fp64 or int64.
  void all_reduce(const at::Tensor& x, Reduction reduction, std::string_view what);

  /// Part r of `output` := `input` of rank r: output has size() times the elements of input and its type.
  Pending start_all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what);
  void all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what);

  /// shard := ((shard + input_0[rank]) + input_1[rank]) + ..., where input_r[q] is part q of rank r's input: adds up
  /// what all ranks have for the part that this rank owns, on top of what it had. input has size() times the elements
  /// of shard, or k times as many: each part is then k summands, added one after the other. Both fp32 (fp64).
  Pending start_reduce_scatter_add(const at::Tensor& shard, const at::Tensor& input, std::string_view what);
  void reduce_scatter_add(const at::Tensor& shard, const at::Tensor& input, std::string_view what);

  /// Rows of `input` to the ranks, rows of the ranks to `output` (Transport::all_to_all).
  Pending start_all_to_all(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_rows,
                           const std::vector<int64_t>& input_rows, std::string_view what);
  void all_to_all(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_rows,
                  const std::vector<int64_t>& input_rows, std::string_view what);

  /// `data` of every rank := `data` of `root`.
  void broadcast(const at::Tensor& data, int root, std::string_view what);

  /// The texts of all ranks, in their order.
  std::vector<std::string> all_gather_text(const std::string& text, std::string_view what);

  /// Returns when every rank has called it.
  void barrier(std::string_view what);

  /// See Transport::subgroup. The new group shares the step of this one.
  std::shared_ptr<Comm> subgroup(const std::vector<int>& members, const std::string& name);

  /// Ends the collectives of all ranks of the run with `reason`.
  void abort(const std::string& reason) noexcept { transport_->abort(reason); }

  /// Where the run is, told in the errors of all its groups: from 1; 0 = before the first step.
  void set_step(int64_t step) { *step_ = step; }

  /// By "<collective> <what>", since the start.
  const std::map<std::string, Traffic, std::less<>>& traffic() const { return traffic_; }

 private:
  std::string describe(std::string_view collective, std::string_view what) const;
  Traffic& count(std::string_view collective, std::string_view what, int64_t bytes_sent);
  template <typename Start>
  Pending begin(std::string_view collective, std::string_view what, int64_t bytes_sent, const Start& start);

  std::shared_ptr<Transport> transport_;
  std::string name_;
  std::shared_ptr<int64_t> step_ = std::make_shared<int64_t>(0);  // of all groups of the run
  std::map<std::string, Traffic, std::less<>> traffic_;
};

}  // namespace asterism::dist
