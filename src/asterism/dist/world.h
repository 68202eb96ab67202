#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "asterism/dist/environment.h"
#include "asterism/dist/roster.h"
#include "asterism/dist/watch.h"

namespace asterism::dist {

struct WorldOptions {
  /// How long the ranks wait for each other at the start.
  std::chrono::milliseconds rendezvous_timeout = std::chrono::minutes(5);
  WatchOptions watch;
};

/// This process as one of the ranks of a run, from the meeting of all at the start to the end of all. A run of one
/// process has neither a store nor a watch.
class World {
 public:
  /// Returns when all ranks are here. InputError when two are the same rank, when they were started for different
  /// numbers of ranks or the port is taken; RunError that names the missing ranks; PeerError when one has failed.
  World(Place place, WorldOptions options = {});
  /// Without leave(), the run has failed: what was not reported by then is unknown to the others.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  /// Among the ranks of this machine, and how many these are.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::vector<Member>& members() const { return members_; }

  /// All ranks call it with the same labels (program, recipe, checkpoint): InputError on every rank that names each
  /// label and rank whose value differs from that of rank 0.
  void compare(const std::vector<std::pair<std::string, std::string>>& facts);

  /// Runs `work`. When it throws, the other ranks are told why and end, too; the exception goes on. A PeerError is the
  /// consequence of another rank's failure and not reported again.
  void run(const std::function<void()>& work);

  /// The others end with `reason`.
  void abort(const std::string& reason) noexcept;

  /// To be called now and then by work that takes long without a collective while others wait (loading, saving):
  /// otherwise this rank counts as silent after the time-out.
  void show_progress();

  /// The end of a run that has not failed: waits for all ranks, so that nobody's last messages are cut off. PeerError
  /// when a rank fails before it comes here.
  void leave();

  // For transports. meet: like a barrier of `ranks`, at the store.
  void meet(const std::string& name, const std::vector<int>& ranks);
  Store& store() { return *store_; }
  const std::shared_ptr<Watch>& watch() const { return watch_; }
  const WorldOptions& options() const { return options_; }

 private:
  void meet_others();
  std::vector<int> all_ranks() const;
  void linger();

  Place place_;
  WorldOptions options_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Roster> roster_;
  std::shared_ptr<Watch> watch_;
  std::vector<Member> members_;
  int local_rank_ = 0, local_size_ = 1;
  int comparisons_ = 0;
  bool left_ = false;
};

}  // namespace asterism::dist
