#pragma once

#include <cstdint>
#include <string>

namespace asterism::dist {

/// Name of this machine.
std::string machine_name();

/// The address of this machine at which others reach it, as seen on the way to `host`: that of the interface which the
/// route takes. A machine that knows itself only as 127.x (Debian's /etc/hosts) takes its first other address.
/// RunError when `host` is unknown or there is no way to it.
std::string address_towards(const std::string& host);

}  // namespace asterism::dist
