#include "asterism/dist/thread_transport.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace asterism::dist {

namespace {

enum class Movement { kAllGather, kAllToAll, kBroadcast };

// What one rank brings to one movement.
struct Posting {
  Movement movement = Movement::kAllGather;
  at::Tensor output, input;
  std::vector<int64_t> output_rows, input_rows;
  int root = 0;
  std::string what;
};

// All ranks' postings of the n-th movement of a group.
struct Meeting {
  std::vector<std::optional<Posting>> postings;
  int posted = 0, waited = 0;
  bool done = false;
};

// What all groups of a run share: one lock, because abort reaches every group.
struct Run {
  std::mutex mutex;
  std::condition_variable changed;
  std::string abort_reason;
  bool aborted = false;
  std::chrono::milliseconds timeout{};
};

// One group of ranks. The last rank to post a movement makes it for all, so none depends on when others wait.
struct Group {
  Group(std::shared_ptr<Run> run_, int size_) : run(std::move(run_)), size(size_), next(size_, 0) {}

  std::shared_ptr<Run> run;
  const int size;
  std::vector<int64_t> next;  // number of each rank's next movement
  std::map<int64_t, Meeting> meetings;
  std::map<std::pair<std::string, std::vector<int>>, std::vector<std::shared_ptr<Group>>> subgroups;
};

std::byte* data_of(const at::Tensor& x) {
  return static_cast<std::byte*>(x.data_ptr());
}

void copy_all_to_all(const std::vector<std::optional<Posting>>& postings) {
  const size_t size = postings.size();
  std::vector<int64_t> output_offset(size, 0);
  for (size_t from = 0; from < size; ++from) {
    const Posting& source = *postings[from];
    const int64_t rows = source.input.size(0);
    const int64_t row_bytes = rows == 0 ? 0 : static_cast<int64_t>(source.input.nbytes()) / rows;
    int64_t offset = 0;
    for (size_t to = 0; to < size; ++to) {
      const Posting& target = *postings[to];
      TORCH_CHECK(target.output_rows[from] == source.input_rows[to], "[thread_transport] '", source.what, "': rank ",
                  from, " sends ", source.input_rows[to], " rows to rank ", to, ", which expects ",
                  target.output_rows[from]);
      const int64_t bytes = source.input_rows[to] * row_bytes;
      if (bytes > 0) {
        std::memcpy(data_of(target.output) + output_offset[to], data_of(source.input) + offset,
                    static_cast<size_t>(bytes));
      }
      output_offset[to] += bytes;
      offset += bytes;
    }
  }
}

void make_movement(const std::vector<std::optional<Posting>>& postings) {
  for (const auto& posting : postings) {
    TORCH_CHECK(posting->movement == postings[0]->movement, "[thread_transport] ranks issue different collectives: '",
                postings[0]->what, "' and '", posting->what, "'");
  }
  if (postings[0]->movement == Movement::kAllToAll) {
    copy_all_to_all(postings);
    return;
  }
  for (const auto& target : postings) {
    if (postings[0]->movement == Movement::kBroadcast) {
      const at::Tensor& source = postings[target->root]->input;
      TORCH_CHECK(source.nbytes() == target->input.nbytes(), "[thread_transport] '", target->what, "': sizes differ");
      if (data_of(source) != data_of(target->input) && source.nbytes() > 0) {
        std::memcpy(data_of(target->input), data_of(source), source.nbytes());
      }
      continue;
    }
    const size_t bytes = postings[0]->input.nbytes();
    for (size_t r = 0; r < postings.size(); ++r) {
      TORCH_CHECK(postings[r]->input.nbytes() == bytes, "[thread_transport] '", target->what, "': sizes differ");
      std::byte* part = data_of(target->output) + r * bytes;
      // An input may be its rank's own part of the output.
      if (bytes > 0 && part != data_of(postings[r]->input)) std::memcpy(part, data_of(postings[r]->input), bytes);
    }
  }
}

class ThreadWork : public Work {
 public:
  ThreadWork(std::shared_ptr<Group> group, int64_t number) : group_(std::move(group)), number_(number) {}

  void wait() override {
    Run& run = *group_->run;
    std::unique_lock lock(run.mutex);
    Meeting& meeting = group_->meetings.at(number_);
    const bool in_time = run.changed.wait_for(lock, run.timeout, [&] { return meeting.done || run.aborted; });
    if (!meeting.done && run.aborted) throw PeerError(run.abort_reason);
    if (!in_time) {
      std::string missing;
      for (int r = 0; r < group_->size; ++r) {
        if (!meeting.postings[r]) missing += text(missing.empty() ? "" : ", ", r);
      }
      throw PeerError(text("no answer for ", run.timeout.count(), " ms; still missing: rank ", missing));
    }
    if (++meeting.waited == group_->size) group_->meetings.erase(number_);
  }

 private:
  std::shared_ptr<Group> group_;
  int64_t number_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  std::unique_ptr<Work> all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) override {
    return post({Movement::kAllGather, output, input, {}, {}, 0, std::string(what)});
  }

  std::unique_ptr<Work> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                                   std::string_view what) override {
    return post({Movement::kAllToAll, output, input, output_rows, input_rows, 0, std::string(what)});
  }

  std::unique_ptr<Work> broadcast(const at::Tensor& data, int root, std::string_view what) override {
    return post({Movement::kBroadcast, {}, data, {}, {}, root, std::string(what)});
  }

  // Every rank asks for its own group, the first of its members makes it; a group made twice under one name is the
  // next one of that name.
  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, const std::string& name) override {
    std::shared_ptr<Group> group;
    {
      const std::scoped_lock lock(group_->run->mutex);
      auto& made = group_->subgroups[{name, members}];
      const size_t number = asked_[{name, members}]++;
      if (made.size() == number) made.push_back(std::make_shared<Group>(group_->run, static_cast<int>(members.size())));
      group = made.at(number);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank_) return std::make_shared<ThreadTransport>(group, static_cast<int>(i));
    }
    TORCH_CHECK(false, "[thread_transport] rank ", rank_, " asks for group '", name, "' without being a member");
  }

  void abort(const std::string& reason) noexcept override {
    const std::scoped_lock lock(group_->run->mutex);
    if (!group_->run->aborted) group_->run->abort_reason = reason;
    group_->run->aborted = true;
    group_->run->changed.notify_all();
  }

 private:
  std::unique_ptr<Work> post(Posting posting) {
    Run& run = *group_->run;
    const std::scoped_lock lock(run.mutex);
    if (run.aborted) throw PeerError(run.abort_reason);
    const int64_t number = group_->next[rank_]++;
    Meeting& meeting = group_->meetings[number];
    meeting.postings.resize(group_->size);
    meeting.postings[rank_] = std::move(posting);
    if (++meeting.posted == group_->size) {
      make_movement(meeting.postings);
      for (auto& each : meeting.postings) {
        each->output.reset();
        each->input.reset();
      }
      meeting.done = true;
      run.changed.notify_all();
    }
    return std::make_unique<ThreadWork>(group_, number);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::map<std::pair<std::string, std::vector<int>>, size_t> asked_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_thread_transports(int size, std::chrono::milliseconds timeout) {
  const auto run = std::make_shared<Run>();
  run->timeout = timeout;
  const auto group = std::make_shared<Group>(run, size);
  std::vector<std::shared_ptr<Transport>> transports;
  for (int r = 0; r < size; ++r) transports.push_back(std::make_shared<ThreadTransport>(group, r));
  return transports;
}

void run_thread_ranks(int size, const std::function<void(const std::shared_ptr<Transport>&)>& body,
                      std::chrono::milliseconds timeout) {
  const auto transports = make_thread_transports(size, timeout);
  std::mutex mutex;
  std::exception_ptr primary, consequence;
  const auto run_rank = [&](int rank) {
    const auto keep = [&](std::exception_ptr& slot, const std::exception& error) {
      const std::scoped_lock lock(mutex);
      if (!slot) slot = std::current_exception();
      transports[rank]->abort(text("rank ", rank, ": ", user_message(error)));
    };
    try {
      body(transports[rank]);
    } catch (const PeerError& error) {
      keep(consequence, error);
    } catch (const std::exception& error) {
      keep(primary, error);
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back(run_rank, r);
  for (std::thread& thread : threads) thread.join();
  if (primary) std::rethrow_exception(primary);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace asterism::dist
