#pragma once

#include <memory>

#include "asterism/dist/transport.h"

namespace asterism::dist {

/// A transport that compares every movement over the ranks before it starts: its number, kind, name, type and sizes. On
/// the first disagreement all ranks get a RunError that names the rank, what each side issued, and the number, and all
/// ranks of the run end. A rank that never comes is left to the time-out of `inner`. Costs a small all_gather per
/// movement, which starts no earlier: to find an error, not to train with.
std::shared_ptr<Transport> make_checking_transport(std::shared_ptr<Transport> inner);

}  // namespace asterism::dist
