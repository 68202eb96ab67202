#include "asterism/dist/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "asterism/core/error.h"

namespace asterism::dist {

namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char name[NI_MAXHOST] = {};
  if (::getnameinfo(address, length, name, sizeof(name), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return name;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string first_other_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* at = list; at != nullptr && found.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    found = numeric(at->ifa_addr, sizeof(sockaddr_in));
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace

std::string machine_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "this machine";
  return name;
}

std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* addresses = nullptr;
  // A datagram socket that is connected sends nothing, but has chosen its interface. Any port will do.
  if (const int failure = ::getaddrinfo(host.c_str(), "9", &hints, &addresses)) {
    run_error("MASTER_ADDR: ", host, " is not known here: ", ::gai_strerror(failure));
  }
  std::string found, reason = "no address";
  for (const addrinfo* at = addresses; at != nullptr && found.empty(); at = at->ai_next) {
    const int connection = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (connection < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof(own);
    if (::connect(connection, at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(connection, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      found = numeric(reinterpret_cast<const sockaddr*>(&own), length);
    } else {
      reason = std::strerror(errno);
    }
    ::close(connection);
  }
  ::freeaddrinfo(addresses);
  if (found.empty()) run_error("MASTER_ADDR: there is no way from here to ", host, ": ", reason);
  if (!is_loopback(found)) return found;
  const std::string other = first_other_address();
  return other.empty() ? found : other;
}

}  // namespace asterism::dist
