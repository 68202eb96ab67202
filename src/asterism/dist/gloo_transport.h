#pragma once

#include <memory>

#include "asterism/dist/transport.h"
#include "asterism/dist/world.h"

namespace asterism::dist {

/// The ranks of `world` over gloo: tensors in the memory of the host. All ranks call it at the same time. Movements
/// that do not agree (another kind, name or size) never meet: they end with the time-out and an error that names them.
/// A movement of no bytes between two ranks takes no message.
std::shared_ptr<Transport> make_gloo_transport(const std::shared_ptr<World>& world);

}  // namespace asterism::dist
