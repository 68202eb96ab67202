#include "asterism/dist/gloo_transport.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "asterism/core/error.h"
#include "asterism/dist/store_handle.h"

namespace asterism::dist {

namespace {

using Group = c10d::ProcessGroupGloo;
using Step = c10::intrusive_ptr<c10d::Work>;

// The watch decides who is silent. Gloo's own time-out would close all connections and tell no rank.
constexpr std::chrono::hours kNever{24 * 365};  // zero would mean that of the group

/// What all groups of a process share.
struct GlooRun {
  std::shared_ptr<World> world;
  std::shared_ptr<::gloo::transport::Device> device;
};

/// The place where the thread of a rank waits, to be woken by the watch.
class WaitingRoom {
 public:
  /// Throws what gloo throws; false when the wait was interrupted.
  bool wait(const Step& step) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      waiting_ = step.get();
    }
    // An abort that comes before the wait has begun is remembered by gloo's buffer.
    const auto leave = [this] {
      const std::lock_guard lock(mutex_);
      waiting_ = nullptr;
    };
    try {
      const bool complete = step->wait(kNever);
      leave();
      return complete;
    } catch (...) {
      leave();
      throw;
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (waiting_ != nullptr) waiting_->abort();
  }

 private:
  std::mutex mutex_;
  c10d::Work* waiting_ = nullptr;
  bool closed_ = false;
};

class GlooWork : public Work {
 public:
  GlooWork(std::shared_ptr<Watch> watch, std::shared_ptr<WaitingRoom> room, std::string what)
      : watch_(std::move(watch)), room_(std::move(room)), what_(std::move(what)) {}

  void keep(const at::Tensor& tensor) { tensors_.push_back(tensor); }
  void add(Step step) { steps_.push_back(std::move(step)); }

  void wait() override {
    if (!watch_) return;  // a group of one
    watch_->enter(what_);
    for (const Step& step : steps_) finish(step);
    watch_->leave();
    steps_.clear();
    tensors_.clear();
  }

 private:
  void finish(const Step& step) {
    bool complete = false;
    try {
      complete = room_->wait(step);
    } catch (const std::exception& error) {
      watch_->explain(error);
    }
    if (complete) return;
    watch_->check();
    throw PeerError("the movement was ended");
  }

  std::shared_ptr<Watch> watch_;
  std::shared_ptr<WaitingRoom> room_;
  std::string what_;
  std::vector<at::Tensor> tensors_;  // outlive the steps, which only point into their memory
  std::vector<Step> steps_;
};

// `count` bytes of a contiguous tensor from `first` on. The tensor owns the memory and must be kept.
at::Tensor byte_range(const at::Tensor& tensor, int64_t first, int64_t count) {
  return at::from_blob(static_cast<uint8_t*>(tensor.data_ptr()) + first, {count}, at::kByte);
}

int64_t bytes_per_row(const at::Tensor& tensor) {
  int64_t bytes = static_cast<int64_t>(tensor.element_size());
  for (int64_t d = 1; d < tensor.dim(); ++d) bytes *= tensor.size(d);
  return bytes;
}

class GlooTransport : public Transport {
 public:
  /// `members`: the ranks of the world that form the group, ascending; `path` names it in the store.
  GlooTransport(std::shared_ptr<GlooRun> run, std::vector<int> members, std::string path)
      : run_(std::move(run)), members_(std::move(members)), path_(std::move(path)) {
    const auto own = std::ranges::find(members_, run_->world->rank());
    TORCH_CHECK(own != members_.end(), "[gloo] rank ", run_->world->rank(), " is no member of the group ", path_);
    rank_ = static_cast<int>(own - members_.begin());
    if (size() == 1) return;
    watch_ = run_->world->watch();
    connect();
    interrupt_ = watch_->on_failure([room = room_] { room->close(); });
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Work> all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) override {
    const auto bytes = static_cast<int64_t>(input.nbytes());
    TORCH_CHECK(static_cast<int64_t>(output.nbytes()) == bytes * size(), "[gloo] all_gather '", what, "': expected ",
                bytes * size(), " bytes of output, got ", output.nbytes());
    const std::vector<int64_t> output_bytes(size(), bytes);
    return exchange("all_gather", what, output, output_bytes, input, std::vector<int64_t>(size(), bytes),
                    /*same_for_all=*/true);
  }

  std::unique_ptr<Work> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                                   std::string_view what) override {
    const auto in_bytes = [&](const at::Tensor& tensor, const std::vector<int64_t>& rows) {
      std::vector<int64_t> counts;
      int64_t bytes = 0;
      for (const int64_t count : rows) bytes += counts.emplace_back(count * bytes_per_row(tensor));
      TORCH_CHECK(static_cast<int>(rows.size()) == size() && bytes == static_cast<int64_t>(tensor.nbytes()),
                  "[gloo] all_to_all '", what, "': ", rows.size(), " counts of rows, ", bytes,
                  " bytes, for a tensor of ", tensor.sizes(), " and ", tensor.nbytes(), " bytes in a group of ",
                  size());
      return counts;
    };
    return exchange("all_to_all", what, output, in_bytes(output, output_rows), input, in_bytes(input, input_rows),
                    /*same_for_all=*/false);
  }

  std::unique_ptr<Work> broadcast(const at::Tensor& data, int root, std::string_view what) override {
    const auto bytes = static_cast<int64_t>(data.nbytes());
    const std::vector<int64_t> nothing(size(), 0);
    std::vector<int64_t> from_root = nothing;
    if (rank_ != root) {
      from_root[root] = bytes;
      // One part of output, from the root: all of it.
      return exchange("broadcast", what, data, from_root, data, nothing, /*same_for_all=*/true);
    }
    std::vector<int64_t> to_all(size(), bytes);
    to_all[root] = 0;
    return exchange("broadcast", what, data, nothing, data, to_all, /*same_for_all=*/true);
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, const std::string& name) override {
    std::vector<int> ranks;
    for (const int member : members) {
      TORCH_CHECK(member >= 0 && member < size(), "[gloo] group '", name, "': there is no rank ", member);
      ranks.push_back(members_[member]);
    }
    // The same name may be given again, and other members take it at the same time.
    const std::string path = text(path_, "/", name, "-", subgroups_++, "-of-", ranks.empty() ? -1 : ranks.front());
    return std::make_shared<GlooTransport>(run_, ranks, path);
  }

  void abort(const std::string& reason) noexcept override { run_->world->abort(reason); }

 private:
  void connect() {
    auto options = Group::Options::create(run_->world->options().watch.timeout);
    options->devices.push_back(run_->device);
    options->threads = 1;  // of the collectives that gloo itself has: never used
    // Gloo cannot be woken while it connects: only when all are there and about to do the same.
    run_->world->meet(text("the connecting of group ", path_), members_);
    watch_->enter(text("the connecting of group ", path_), /*meeting=*/true);
    try {
      group_ = c10::make_intrusive<Group>(
          c10::make_intrusive<c10d::PrefixStore>(path_, run_->world->store().handle().keys), rank_, size(), options);
    } catch (const std::exception& error) {
      watch_->explain(error);
    }
    watch_->leave();
  }

  // Messages of one movement meet by their tag. It holds kind, name and size, so that calls that do not agree wait for
  // each other in place of taking each other's bytes (gloo ends the process when a message does not fit).
  int tag_of(std::string_view kind, std::string_view what, int64_t bytes) const {
    uint64_t hash = 14695981039346656037ULL;
    const auto mix = [&hash](std::string_view part) {
      for (const char c : part) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
    };
    mix(kind);
    mix(what);
    mix(std::to_string(bytes));
    constexpr int kSequenceBits = 10, kHashBits = 21;
    const uint64_t sequence = sequence_ % (1U << kSequenceBits);
    return static_cast<int>((sequence << kHashBits) | ((hash ^ (hash >> 32)) % (1U << kHashBits)));
  }

  // Sends and receives the parts, which follow each other in rank order; with `same_for_all` every rank is sent the
  // whole of input. Receives first: a message that is expected is written to where it belongs.
  std::unique_ptr<Work> exchange(std::string_view kind, std::string_view what, const at::Tensor& output,
                                 const std::vector<int64_t>& output_bytes, const at::Tensor& input,
                                 const std::vector<int64_t>& input_bytes, bool same_for_all) {
    const int64_t own_bytes = std::min(output_bytes[rank_], input_bytes[rank_]);
    std::vector<int64_t> output_at(size(), 0), input_at(size(), 0);
    for (int r = 1; r < size(); ++r) {
      output_at[r] = output_at[r - 1] + output_bytes[r - 1];
      input_at[r] = same_for_all ? 0 : input_at[r - 1] + input_bytes[r - 1];
    }
    std::unique_ptr<GlooWork> work;
    if (size() == 1) {
      work = std::make_unique<GlooWork>(nullptr, nullptr, "");
    } else {
      const std::string name = text(kind, " '", what, "' (", output.nbytes(), " bytes)");
      watch_->check();
      watch_->begin(name);
      work = std::make_unique<GlooWork>(watch_, room_, name);
      work->keep(output);
      work->keep(input);
      try {
        post(*work, kind, what, output, output_bytes, output_at, input, input_bytes, input_at);
      } catch (const std::exception& error) {
        watch_->explain(error);
      }
      sequence_ += 1;
    }
    if (own_bytes > 0) {
      const auto* from = static_cast<const uint8_t*>(input.const_data_ptr()) + input_at[rank_];
      auto* to = static_cast<uint8_t*>(output.data_ptr()) + output_at[rank_];
      if (from != to) std::memcpy(to, from, own_bytes);
    }
    return work;
  }

  void post(GlooWork& work, std::string_view kind, std::string_view what, const at::Tensor& output,
            const std::vector<int64_t>& output_bytes, const std::vector<int64_t>& output_at, const at::Tensor& input,
            const std::vector<int64_t>& input_bytes, const std::vector<int64_t>& input_at) {
    // Each rank begins with its neighbour, so that not all send to the same one.
    for (int i = 1; i < size(); ++i) {
      const int from = (rank_ - i + size()) % size();
      if (output_bytes[from] == 0) continue;
      std::vector<at::Tensor> part = {byte_range(output, output_at[from], output_bytes[from])};
      work.add(group_->recv(part, from, tag_of(kind, what, output_bytes[from])));
    }
    for (int i = 1; i < size(); ++i) {
      const int to = (rank_ + i) % size();
      if (input_bytes[to] == 0) continue;
      std::vector<at::Tensor> part = {byte_range(input, input_at[to], input_bytes[to])};
      work.add(group_->send(part, to, tag_of(kind, what, input_bytes[to])));
    }
  }

  std::shared_ptr<GlooRun> run_;
  std::vector<int> members_;
  std::string path_;
  int rank_ = 0;
  std::shared_ptr<Watch> watch_;  // none in a group of one
  std::shared_ptr<WaitingRoom> room_ = std::make_shared<WaitingRoom>();
  c10::intrusive_ptr<Group> group_;
  std::shared_ptr<void> interrupt_;
  uint64_t sequence_ = 0;
  int subgroups_ = 0;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const std::shared_ptr<World>& world) {
  auto run = std::make_shared<GlooRun>();
  run->world = world;
  std::vector<int> members;
  for (int rank = 0; rank < world->size(); ++rank) members.push_back(rank);
  if (world->size() > 1) {
    const std::string& address = world->members()[world->rank()].address;
    try {
      run->device = Group::createDeviceForHostname(address);
    } catch (const std::exception& error) {
      run_error("cannot open a connection on ", address, ": ", user_message(error));
    }
  }
  return std::make_shared<GlooTransport>(std::move(run), std::move(members), "gloo/world");
}

}  // namespace asterism::dist
