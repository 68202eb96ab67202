#include "asterism/checkpoint/sliced_safetensors.h"

#include <algorithm>

namespace asterism::checkpoint {
namespace fs = std::filesystem;

SlicedWriter::SlicedWriter(const fs::path& path, std::vector<PlannedTensor> tensors) : path_(path) {
  const std::string header = plan_safetensors(tensors);
  for (const PlannedTensor& tensor : tensors) {
    missing_ += tensor.bytes;
    tensors_[tensor.name] = tensor;
  }
  file_ = std::make_unique<PositionedWriter>(path, header.size() + missing_);
  file_->write(header.data(), header.size(), 0);
}

void SlicedWriter::write(const std::string& name, int64_t begin, const at::Tensor& elements) {
  const PlannedTensor& tensor = tensors_.at(name);
  const at::Tensor dense = elements.detach().contiguous();
  const uint64_t first = static_cast<uint64_t>(begin) * c10::elementSize(tensor.dtype);
  TORCH_CHECK(dense.scalar_type() == tensor.dtype && first + dense.nbytes() <= tensor.bytes, "[safetensors] ", name,
              ": ", dense.numel(), " elements of ", dense.dtype().name(), " from ", begin, " on do not lie in it");
  file_->write(dense.const_data_ptr(), dense.nbytes(), tensor.offset + first);
  missing_ -= std::min<uint64_t>(missing_, dense.nbytes());
}

void SlicedWriter::close() {
  TORCH_CHECK(missing_ == 0, "[safetensors] ", path_.string(), ": ", missing_, " bytes were not written");
  file_->close();
}

SlicedFile::SlicedFile(const fs::path& path, std::string prefix, model::SliceReader* rest)
    : tensors_(SafetensorsFile::open(path)), bytes_(path), prefix_(std::move(prefix)), rest_(rest) {}

void SlicedFile::read(const std::string& name, int64_t begin, const at::Tensor& out) {
  constexpr int64_t kStretchBytes = 1 << 20;
  if (rest_ != nullptr && !contains(name)) return rest_->read(name, begin, out);
  const TensorInfo& info = tensors_.info(prefix_ + name);
  const auto width = static_cast<int64_t>(c10::elementSize(info.dtype));
  const int64_t end = static_cast<int64_t>(info.bytes) / width, stretch = kStretchBytes / width;
  TORCH_CHECK(begin >= 0 && begin + out.numel() <= end, "[safetensors] ", info.name, ": elements ", begin, " .. ",
              begin + out.numel(), " of ", end);
  for (int64_t done = 0; done < out.numel(); done += stretch) {
    const at::Tensor target = out.narrow(0, done, std::min(stretch, out.numel() - done));
    const bool as_it_is = target.scalar_type() == info.dtype;
    const at::Tensor values = as_it_is ? target : at::empty({target.numel()}, info.dtype);
    bytes_.read(values.mutable_data_ptr(), values.nbytes(),
                info.offset + static_cast<uint64_t>((begin + done) * width));
    if (!as_it_is) at::Tensor(target).copy_(values);
  }
}

}  // namespace asterism::checkpoint
