#include "asterism/parallel/sharded_tensors.h"

#include <algorithm>

namespace asterism::parallel {

namespace {

// Tensors begin where a fresh allocation would: products read aligned rows, sharded or not.
constexpr int64_t kAlignmentBytes = 64;

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

int64_t end_of(const auto& places) {
  return places.empty() ? 0 : places.back().offset + places.back().elements;
}

}  // namespace

void read_held(const at::Tensor& whole, int64_t begin, const at::Tensor& out) {
  at::Tensor(out).copy_(whole.detach().contiguous().view({-1}).narrow(0, begin, out.numel()));
}

void ShardedTensors::add_place(Buffer& buffer, size_t slot, const at::Tensor& tensor, at::ScalarType type) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  buffer.places.push_back({slot, round_up(end_of(buffer.places), kAlignmentBytes / element_bytes), tensor.sizes().vec(),
                           tensor.scalar_type(), static_cast<int64_t>(tensor.nbytes()) / element_bytes});
}

// Every rank asks for every tensor, also where it has nothing of it: ranks may read together.
void ShardedTensors::make_shard(Buffer& buffer, int rank, int ranks, at::ScalarType type, const FillSlice& fill) {
  const int64_t unit = kAlignmentBytes / static_cast<int64_t>(c10::elementSize(type));
  buffer.part = round_up((end_of(buffer.places) + ranks - 1) / ranks, unit);
  buffer.shard = at::zeros({buffer.part}, type);
  const int64_t first = rank * buffer.part;
  for (const Place& place : buffer.places) {
    const int64_t begin = std::max(place.offset, first);
    const int64_t end = std::max(begin, std::min(place.offset + place.elements, first + buffer.part));
    at::Tensor out = end > begin ? buffer.shard.narrow(0, begin - first, end - begin) : at::empty({0}, type);
    if (place.type != type) out = out.view(place.type);
    const auto elements_of_buffer = static_cast<int64_t>(c10::elementSize(place.type) / c10::elementSize(type));
    fill(place.slot, end > begin ? (begin - place.offset) / elements_of_buffer : 0, out);
  }
}

ShardedTensors::ShardedTensors(std::string name, const std::vector<at::Tensor>& tensors, int rank, int ranks)
    : ShardedTensors(std::move(name), tensors, rank, ranks,
                     [&](size_t slot, int64_t begin, const at::Tensor& out) { read_held(tensors[slot], begin, out); }) {
}

ShardedTensors::ShardedTensors(std::string name, const std::vector<at::Tensor>& outlines, int rank, int ranks,
                               const FillSlice& fill)
    : name_(std::move(name)), rank_(rank), ranks_(ranks), slots_(outlines.size()), touched_(outlines.size(), false) {
  at::ScalarType trained_type = at::kFloat;
  for (size_t i = 0; i < outlines.size(); ++i) {
    const at::Tensor& tensor = outlines[i];
    if (!tensor.defined()) continue;
    if (!tensor.requires_grad()) {
      add_place(frozen_buffer_, i, tensor, at::kByte);
      continue;
    }
    TORCH_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble,
                "[sharded_tensors] trained tensors are fp32 masters, got ", tensor.dtype().name());
    TORCH_CHECK(trained_.empty() || tensor.scalar_type() == trained_type,
                "[sharded_tensors] the trained tensors of a unit have one type");
    trained_type = tensor.scalar_type();
    trained_.push_back(i);
    add_place(trained_buffer_, i, tensor, trained_type);
  }
  make_shard(trained_buffer_, rank, ranks, trained_type, fill);
  make_shard(frozen_buffer_, rank, ranks, at::kByte, fill);
  const int64_t first = rank_ * trained_buffer_.part;
  for (const Place& place : trained_buffer_.places) {
    const int64_t begin = std::max(place.offset, first);
    const int64_t end = std::min(place.offset + place.elements, first + trained_buffer_.part);
    if (begin >= end) continue;
    pieces_.push_back(
        {place.slot, begin - place.offset, trained_buffer_.shard.narrow(0, begin - first, end - begin), {}});
  }
}

std::vector<at::Tensor> ShardedTensors::views(const Buffer& buffer, const at::Tensor& whole) const {
  std::vector<at::Tensor> tensors;
  for (const Place& place : buffer.places) {
    const at::Tensor flat = whole.narrow(0, place.offset, place.elements);
    tensors.push_back((flat.scalar_type() == place.type ? flat : flat.view(place.type)).view(place.shape));
  }
  return tensors;
}

void ShardedTensors::start_gather(dist::Comm& comm) {
  if (gathering_) return;
  gathering_ = true;
  if (!trained_buffer_.places.empty()) {
    trained_whole_ = at::empty({ranks_ * trained_buffer_.part}, trained_buffer_.shard.options());
    trained_pending_ = comm.start_all_gather(trained_whole_, trained_buffer_.shard, name_ + ": trained weights");
  }
  if (!frozen_buffer_.places.empty()) {
    frozen_whole_ = at::empty({ranks_ * frozen_buffer_.part}, frozen_buffer_.shard.options());
    frozen_pending_ = comm.start_all_gather(frozen_whole_, frozen_buffer_.shard, name_ + ": frozen weights");
  }
}

std::vector<at::Tensor> ShardedTensors::gather(dist::Comm& comm) {
  const at::NoGradGuard no_grad;
  start_gather(comm);
  trained_pending_.wait();
  frozen_pending_.wait();
  gathering_ = false;
  const at::Tensor trained = std::exchange(trained_whole_, {}), frozen = std::exchange(frozen_whole_, {});
  std::vector<at::Tensor> tensors(slots_);
  if (trained.defined()) {
    const std::vector<at::Tensor> whole = views(trained_buffer_, trained);
    for (size_t i = 0; i < whole.size(); ++i) {
      tensors[trained_buffer_.places[i].slot] = whole[i].detach().requires_grad_(true);
    }
  }
  if (frozen.defined()) {
    const std::vector<at::Tensor> whole = views(frozen_buffer_, frozen);
    for (size_t i = 0; i < whole.size(); ++i) tensors[frozen_buffer_.places[i].slot] = whole[i];
  }
  return tensors;
}

void ShardedTensors::add_gradients(dist::Comm& comm, const std::vector<std::vector<at::Tensor>>& contributions,
                                   int copies) {
  if (trained_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(contributions.size());
  const at::Tensor flat = at::zeros({count, ranks_ * trained_buffer_.part}, trained_buffer_.shard.options());
  for (int64_t c = 0; c < count; ++c) {
    const std::vector<at::Tensor> places = views(trained_buffer_, flat[c]);
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t slot = trained_buffer_.places[i].slot;
      if (!contributions[c][slot].defined()) continue;
      places[i].copy_(contributions[c][slot]);
      touched_[slot] = true;
    }
  }
  if (!grad_.defined()) {
    grad_ = at::zeros_like(trained_buffer_.shard);
    for (Piece& piece : pieces_) piece.grad = grad_.narrow(0, piece.value.storage_offset(), piece.value.numel());
  }
  // [rank, contribution, part], once for every copy of the ranks. `repeat` copies, also once.
  at::Tensor by_rank = flat.view({count, ranks_, trained_buffer_.part}).transpose(0, 1);
  if (copies > 1) by_rank = by_rank.repeat({copies, 1, 1});
  comm.reduce_scatter_add(grad_, by_rank.contiguous(), name_ + ": gradients");
}

void ShardedTensors::drop_gradients() {
  grad_.reset();
  for (Piece& piece : pieces_) piece.grad.reset();
  touched_.assign(slots_, false);
}

int64_t ShardedTensors::resident_bytes() const {
  return static_cast<int64_t>(trained_buffer_.shard.nbytes() + frozen_buffer_.shard.nbytes());
}

}  // namespace asterism::parallel
