#include "asterism/dist/store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "asterism/core/error.h"
#include "asterism/dist/store_handle.h"

namespace asterism::dist {

namespace {

using Clock = std::chrono::steady_clock;

// Nothing here waits for long: who waits for others asks again and again, so that a failure is seen meanwhile.
constexpr std::chrono::seconds kCallTimeout{30};
constexpr std::chrono::milliseconds kRetry{50};

// Empty when somebody listens there, else why not. Asked before the client of c10d is made: that one writes a warning
// for every attempt.
std::string why_unreachable(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses)) {
    return ::gai_strerror(failure);
  }
  std::string reason = "no address";
  for (const addrinfo* at = addresses; at != nullptr && !reason.empty(); at = at->ai_next) {
    const int connection = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (connection < 0) continue;
    // A machine that is switched off answers nothing: a few seconds, not the minutes of the kernel.
    const timeval limit = {.tv_sec = 2, .tv_usec = 0};
    ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    reason = ::connect(connection, at->ai_addr, at->ai_addrlen) == 0 ? "" : std::strerror(errno);
    ::close(connection);
  }
  ::freeaddrinfo(addresses);
  return reason;
}

// A listening socket of this machine alone; its port is told by the store.
int listen_locally(uint16_t port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) run_error("cannot make a socket: ", std::strerror(errno));
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    ::close(listener);
    input_error("cannot listen on port ", port, " of this machine: ", reason, "; choose another MASTER_PORT");
  }
  return listener;
}

std::vector<uint8_t> bytes(const std::string& value) {
  return {value.begin(), value.end()};
}

std::string as_text(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}

std::unique_ptr<Store::Handle> make_handle(c10::intrusive_ptr<c10d::TCPStore> tcp, const std::string& run) {
  auto handle = std::make_unique<Store::Handle>();
  handle->keys = c10::make_intrusive<c10d::PrefixStore>("asterism/" + run, tcp);
  handle->tcp = std::move(tcp);
  return handle;
}

c10d::TCPStoreOptions client_options(uint16_t port) {
  // The library writes a warning with a stack trace whenever a connection ends; what it means is told by us.
  if (FLAGS_caffe2_log_level == c10::GLOG_WARNING) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kCallTimeout;
  return options;
}

}  // namespace

Store::Store(std::unique_ptr<Handle> handle, std::string address, std::string run)
    : handle_(std::move(handle)), address_(std::move(address)), run_(std::move(run)) {}

std::shared_ptr<Store> Store::serve(uint16_t port, bool local, const std::string& run) {
  c10d::TCPStoreOptions options = client_options(port);
  options.isServer = true;
  if (local) options.masterListenFd = listen_locally(port);
  try {
    auto tcp = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const std::string address = text("127.0.0.1:", tcp->getPort());
    return std::shared_ptr<Store>(new Store(make_handle(std::move(tcp), run), address, run));
  } catch (const c10::Error& error) {
    input_error("cannot listen on port ", port, " for the other ranks: ", user_message(error),
                "; choose another MASTER_PORT");
  }
}

std::shared_ptr<Store> Store::connect(const std::string& host, uint16_t port, const std::string& run,
                                      std::chrono::milliseconds timeout) {
  const std::string address = text(host, ":", port);
  const Clock::time_point deadline = Clock::now() + timeout;
  std::string reason = why_unreachable(host, port);
  while (!reason.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kRetry);
    reason = why_unreachable(host, port);
  }
  if (!reason.empty()) {
    run_error("cannot reach rank 0 at ", address, " within ", static_cast<double>(timeout.count()) / 1000.0, " s (",
              reason, "): it has not started, MASTER_ADDR or MASTER_PORT is wrong, or a firewall is between");
  }
  try {
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, client_options(port));
    return std::shared_ptr<Store>(new Store(make_handle(std::move(tcp), run), address, run));
  } catch (const c10::Error& error) {
    run_error("cannot meet the other ranks at ", address, ": ", user_message(error), "; is it another program that ",
              "listens there? MASTER_PORT must be the port of this run");
  }
}

template <typename Call>
auto Store::guarded(const Call& call) {
  try {
    return call(*handle_->keys);
  } catch (const c10::Error&) {
    throw StoreLost(text("the connection to the store at ", address_,
                         " is lost: the process that holds it has ended, or the network failed"));
  }
}

std::shared_ptr<Store> Store::another_connection() const {
  return connect(handle_->tcp->getHost(), port(), run_, kCallTimeout);
}

uint16_t Store::port() const {
  return handle_->tcp->getPort();
}

void Store::set(const std::string& name, const std::string& value) {
  guarded([&](c10d::Store& keys) { keys.set(name, bytes(value)); });
}

std::string Store::set_first(const std::string& name, const std::string& value) {
  return guarded([&](c10d::Store& keys) { return as_text(keys.compareSet(name, {}, bytes(value))); });
}

std::optional<std::string> Store::find(const std::string& name) {
  return guarded([&](c10d::Store& keys) -> std::optional<std::string> {
    if (!keys.check({name})) return std::nullopt;
    return as_text(keys.get(name));
  });
}

bool Store::has_all(const std::vector<std::string>& names) {
  return guarded([&](c10d::Store& keys) { return keys.check(names); });
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& names) {
  return guarded([&](c10d::Store& keys) {
    std::vector<std::string> values;
    for (const std::vector<uint8_t>& value : keys.multiGet(names)) values.push_back(as_text(value));
    return values;
  });
}

int64_t Store::add(const std::string& name, int64_t amount) {
  return guarded([&](c10d::Store& keys) { return keys.add(name, amount); });
}

}  // namespace asterism::dist
