#pragma once

#include <memory>

#include "asterism/dist/transport.h"
#include "asterism/dist/world.h"

namespace asterism::dist {

/// This build has NCCL: the PyTorch that it was built with has CUDA, and NCCL's header was there.
bool has_nccl();

/// The ranks of `world` over NCCL: tensors in the memory of CUDA device `device` of this machine. All ranks call it at
/// the same time. Work::wait() does not block the host: it makes the current stream wait, as a kernel of it would. When
/// the run fails, running movements are ended and their results are worthless; the next call throws.
/// InputError that says what is missing when has_nccl() is false.
std::shared_ptr<Transport> make_nccl_transport(const std::shared_ptr<World>& world, int device);

}  // namespace asterism::dist
