#pragma once

#include <string>
#include <vector>

#include "asterism/dist/store.h"

namespace asterism::dist {

/// One process of the run, as it has entered itself in the store.
struct Member {
  int rank = 0;
  std::string host;     // name of its machine
  int64_t process = 0;  // its number there
  std::string address;  // at which the other ranks reach it
};

/// "rank 3 (node7, process 4711)".
std::string describe(const Member& member);

/// "rank 3", "ranks 1, 3 and 5 to 8".
std::string describe_ranks(const std::vector<int>& ranks);

/// Why the run ended: the first failure that was reported.
struct Failure {
  int rank = 0;
  std::string reason;  // "rank 3 (node7, process 4711): the disk is full"
};

/// What the store holds of the ranks of a run. Entries are made once and never changed.
class Roster {
 public:
  Roster(std::shared_ptr<Store> store, int size) : store_(std::move(store)), size_(size) {}

  /// Enters `member` and waits for all others. InputError when another process has its number, or was started for
  /// another number of ranks; RunError that names the missing ranks after `timeout`; PeerError when a rank reported a
  /// failure.
  std::vector<Member> join(const Member& member, std::chrono::milliseconds timeout);

  /// Counts this rank as come to the point `name` and waits for `ranks`; errors as above.
  void meet(const std::string& name, int rank, const std::vector<int>& ranks, std::chrono::milliseconds timeout);

  /// The members that have entered themselves so far.
  std::vector<Member> present();

  std::optional<Failure> failure();
  /// Only the first report stands; returns it.
  Failure report(const Failure& failure);
  /// Throws a PeerError with the reason when there is a failure.
  void check();

 private:
  void wait_for(const std::vector<int>& ranks, const std::string& name, std::chrono::milliseconds timeout);
  std::vector<int> all() const;

  std::shared_ptr<Store> store_;
  int size_;
};

}  // namespace asterism::dist
