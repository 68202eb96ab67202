#pragma once

#include <functional>
#include <string>

#include "asterism/dist/comm.h"
#include "asterism/model/slices.h"

namespace asterism::parallel {

/// Slices that rank 0 alone can read: it reads and sends to every rank of the group what that rank asks for, in
/// stretches, so that beside the slice itself it takes little memory on any rank. All ranks call read with the same
/// names in the same order; the slices are of one type and may differ and overlap.
class StreamedSlices : public model::SliceReader {
 public:
  /// `source` on rank 0; not used on the others. Both must outlive it.
  StreamedSlices(dist::Comm& comm, model::SliceReader* source) : comm_(comm), source_(source) {}
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override;

 private:
  dist::Comm& comm_;
  model::SliceReader* source_;
};

/// The other way: brings the slices of the ranks to rank 0, in stretches. `sink` is called there with what elements
/// begin, begin + 1, .. are, any number of times; the tensor is valid during the call. All ranks call it; a slice may
/// be empty.
using SliceSink = std::function<void(int64_t begin, const at::Tensor& elements)>;
void collect_slices(dist::Comm& comm, int64_t begin, const at::Tensor& own, const SliceSink& sink,
                    const std::string& what);

}  // namespace asterism::parallel
