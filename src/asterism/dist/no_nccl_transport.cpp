#include "asterism/core/error.h"
#include "asterism/dist/nccl_transport.h"

namespace asterism::dist {

bool has_nccl() {
  return false;
}

std::shared_ptr<Transport> make_nccl_transport(const std::shared_ptr<World>&, int) {
  input_error(
      "ranks on GPUs talk over NCCL, and this build has none: it needs a PyTorch with CUDA and the header nccl.h "
      "(package nvidia-nccl beside it). Run make setup with ASTERISM_TORCH pointing at such a PyTorch, and build "
      "again");
}

}  // namespace asterism::dist
