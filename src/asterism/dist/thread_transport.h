#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "asterism/dist/transport.h"

namespace asterism::dist {

/// Ranks that are threads of one process: for tests, the debugger and the sanitizers. Returns one transport for each of
/// `size` ranks; each is used by one thread at a time. A rank that waits longer than `timeout` gets a PeerError which
/// names the ranks that have not come.
std::vector<std::shared_ptr<Transport>> make_thread_transports(
    int size, std::chrono::milliseconds timeout = std::chrono::seconds(60));

/// Runs `body` as every rank in threads of its own and returns when all have ended. When ranks throw, the others are
/// ended by abort, and the first error that is not a consequence of another one's is thrown.
void run_thread_ranks(int size, const std::function<void(const std::shared_ptr<Transport>&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace asterism::dist
