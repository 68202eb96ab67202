#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "asterism/dist/store.h"

namespace asterism::dist {

/// What a Store holds, for the transports that build their groups on it.
struct Store::Handle {
  c10::intrusive_ptr<c10d::TCPStore> tcp;
  c10::intrusive_ptr<c10d::Store> keys;  // those of the run only
};

}  // namespace asterism::dist
