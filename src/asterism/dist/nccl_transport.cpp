#include "asterism/dist/nccl_transport.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "asterism/core/error.h"
#include "asterism/dist/store_handle.h"

namespace asterism::dist {

namespace {

using NcclGroup = c10d::ProcessGroupNCCL;
using NcclStep = c10::intrusive_ptr<c10d::Work>;

// The watch decides who is silent; c10d's own time-out would end the process without a word of who it was.
constexpr std::chrono::hours kNoTimeout{24 * 30};
constexpr std::chrono::milliseconds kPause{20};

at::Tensor flat_bytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

/// Follows the movements of a group as the device gets on with them, since the host does not wait: tells the watch in
/// which one the rank stands, and ends them when the run has failed.
class DeviceProgress {
 public:
  DeviceProgress(std::shared_ptr<Watch> watch, c10::intrusive_ptr<NcclGroup> group)
      : watch_(std::move(watch)), group_(std::move(group)) {
    interrupt_ = watch_->on_failure([this] {
      const std::lock_guard lock(mutex_);
      failed_ = true;
      changed_.notify_all();
    });
    thread_ = std::thread([this] { run(); });
  }

  ~DeviceProgress() {
    interrupt_.reset();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;

  void add(NcclStep step, std::string what) {
    const std::lock_guard lock(mutex_);
    running_.push_back({std::move(step), std::move(what)});
  }

 private:
  struct Running {
    NcclStep step;
    std::string what;
  };

  void run() {
    bool entered = false;
    std::unique_lock lock(mutex_);
    while (!stopping_ && !failed_) {
      bool moved = false;
      while (!running_.empty() && running_.front().step->isCompleted()) {
        running_.pop_front();
        moved = true;
      }
      const std::string what = running_.empty() ? "" : running_.front().what;
      lock.unlock();  // the watch calls the interrupt while it holds its own lock
      if (entered && (moved || what.empty())) {
        watch_->leave();
        entered = false;
      }
      if (!entered && !what.empty()) {
        watch_->enter(what);
        entered = true;
      }
      lock.lock();
      changed_.wait_for(lock, kPause, [&] { return stopping_ || failed_; });
    }
    if (!failed_) return;
    lock.unlock();
    group_->abort();
  }

  std::shared_ptr<Watch> watch_;
  c10::intrusive_ptr<NcclGroup> group_;
  std::shared_ptr<void> interrupt_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Running> running_;
  bool stopping_ = false, failed_ = false;
  std::thread thread_;
};

class NcclWork : public Work {
 public:
  NcclWork(std::shared_ptr<Watch> watch, NcclStep step, std::vector<at::Tensor> tensors)
      : watch_(std::move(watch)), step_(std::move(step)), tensors_(std::move(tensors)) {}

  void wait() override {
    if (!step_) return;
    try {
      step_->wait();
    } catch (const std::exception& error) {
      watch_->explain(error);
    }
    step_.reset();
    tensors_.clear();
    watch_->check();
  }

 private:
  std::shared_ptr<Watch> watch_;
  NcclStep step_;
  std::vector<at::Tensor> tensors_;
};

class NcclTransport : public Transport {
 public:
  /// `members`: the ranks of the world that form the group, ascending; `path` names it in the store.
  NcclTransport(std::shared_ptr<World> world, int device, std::vector<int> members, std::string path)
      : world_(std::move(world)), device_(device), members_(std::move(members)), path_(std::move(path)) {
    const auto own = std::ranges::find(members_, world_->rank());
    TORCH_CHECK(own != members_.end(), "[nccl] rank ", world_->rank(), " is no member of the group ", path_);
    rank_ = static_cast<int>(own - members_.begin());
    if (size() == 1) return;
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    auto options = NcclGroup::Options::create();
    options->timeout = kNoTimeout;
    options->group_name = path_;
    options->global_ranks_in_group.assign(members_.begin(), members_.end());
    group_ = c10::make_intrusive<NcclGroup>(
        c10::make_intrusive<c10d::PrefixStore>(path_, world_->store().handle().keys), rank_, size(), options);
    progress_ = std::make_unique<DeviceProgress>(world_->watch(), group_);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Work> all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) override {
    return start("all_gather", what, {output, input}, output.nbytes() > 0, [&] {
      at::Tensor to = flat_bytes(output), from = flat_bytes(input);
      return group_->_allgather_base(to, from);
    });
  }

  std::unique_ptr<Work> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                                   std::string_view what) override {
    // Also without a byte of its own: the others may have some for each other.
    return start("all_to_all", what, {output, input}, true, [&] {
      int64_t row = static_cast<int64_t>(input.element_size());
      for (int64_t d = 1; d < input.dim(); ++d) row *= input.size(d);
      at::Tensor to = flat_bytes(output), from = flat_bytes(input);
      std::vector<int64_t> received = output_rows, sent = input_rows;
      for (int64_t& count : received) count *= row;
      for (int64_t& count : sent) count *= row;
      return group_->alltoall_base(to, from, received, sent);
    });
  }

  std::unique_ptr<Work> broadcast(const at::Tensor& data, int root, std::string_view what) override {
    return start("broadcast", what, {data}, data.nbytes() > 0, [&] {
      std::vector<at::Tensor> bytes = {flat_bytes(data)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return group_->broadcast(bytes, options);
    });
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, const std::string& name) override {
    std::vector<int> ranks;
    for (const int member : members) {
      TORCH_CHECK(member >= 0 && member < size(), "[nccl] group '", name, "': there is no rank ", member);
      ranks.push_back(members_[member]);
    }
    const std::string path = text(path_, "/", name, "-", subgroups_++, "-of-", ranks.empty() ? -1 : ranks.front());
    return std::make_shared<NcclTransport>(world_, device_, ranks, path);
  }

  void abort(const std::string& reason) noexcept override { world_->abort(reason); }

 private:
  template <typename Start>
  std::unique_ptr<Work> start(std::string_view kind, std::string_view what, std::vector<at::Tensor> tensors,
                              bool any_bytes, const Start& start_step) {
    if (size() == 1) {
      // A movement within one rank; broadcast has a single tensor and nothing to move.
      if (tensors.size() == 2) tensors[0].view({-1}).copy_(tensors[1].view({-1}));
      return std::make_unique<NcclWork>(nullptr, nullptr, std::move(tensors));
    }
    const std::shared_ptr<Watch>& watch = world_->watch();
    const std::string name = text(kind, " '", what, "' (", tensors[0].nbytes(), " bytes)");
    watch->check();
    watch->begin(name);
    NcclStep step;
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
      if (any_bytes) step = start_step();
    } catch (const std::exception& error) {
      watch->explain(error);
    }
    if (step) progress_->add(step, name);
    return std::make_unique<NcclWork>(watch, std::move(step), std::move(tensors));
  }

  std::shared_ptr<World> world_;
  int device_;
  std::vector<int> members_;
  std::string path_;
  int rank_ = 0;
  c10::intrusive_ptr<NcclGroup> group_;
  std::unique_ptr<DeviceProgress> progress_;  // ends before the group
  int subgroups_ = 0;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::shared_ptr<Transport> make_nccl_transport(const std::shared_ptr<World>& world, int device) {
  std::vector<int> members;
  for (int rank = 0; rank < world->size(); ++rank) members.push_back(rank);
  return std::make_shared<NcclTransport>(world, device, std::move(members), "nccl/world");
}

}  // namespace asterism::dist
