#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asterism/dist/transport.h"

namespace asterism::dist {

/// The connection to the store is gone: the process that holds it has ended, or the network between.
class StoreLost : public PeerError {
 public:
  using PeerError::PeerError;
};

/// Short texts under names, kept by one process of a run (or its launcher) and seen by all: how the processes meet and
/// what they tell each other beside the collectives. Calls come from one thread at a time; another thread takes a
/// connection of its own. Every function throws StoreLost.
class Store {
 public:
  /// Starts a store in this process. Port 0: a free one. `local`: for processes of this machine only. InputError when
  /// the port is taken.
  static std::shared_ptr<Store> serve(uint16_t port, bool local, const std::string& run);
  /// Connects to a store, waiting for it to start. RunError naming the address after `timeout`.
  static std::shared_ptr<Store> connect(const std::string& host, uint16_t port, const std::string& run,
                                        std::chrono::milliseconds timeout);
  std::shared_ptr<Store> another_connection() const;

  uint16_t port() const;

  void set(const std::string& name, const std::string& value);
  /// Sets it unless it is there; returns what is there now.
  std::string set_first(const std::string& name, const std::string& value);
  std::optional<std::string> find(const std::string& name);
  /// All of them are there.
  bool has_all(const std::vector<std::string>& names);
  /// Their values; only for names that are there.
  std::vector<std::string> get_all(const std::vector<std::string>& names);
  /// Adds to a counter that starts at 0; returns its new value. A counter's name must not be set otherwise.
  int64_t add(const std::string& name, int64_t amount);

  struct Handle;
  const Handle& handle() const { return *handle_; }

 private:
  Store(std::unique_ptr<Handle> handle, std::string address, std::string run);
  template <typename Call>
  auto guarded(const Call& call);

  std::shared_ptr<Handle> handle_;
  std::string address_, run_;
};

}  // namespace asterism::dist
