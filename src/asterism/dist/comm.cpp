#include "asterism/dist/comm.h"

#include <cstring>
#include <functional>

namespace asterism::dist {

namespace {

// Below this size a sum is made by everyone from everything: one message instead of two in a row.
constexpr int64_t kSmallBytes = 64 * 1024;

at::Tensor bytes_of(const at::Tensor& x) {
  return x.reshape({-1}).view(at::kByte);
}

void check_contiguous(const at::Tensor& x, std::string_view what) {
  TORCH_CHECK(x.defined() && x.is_contiguous(), "[comm] ", what, ": tensors must be defined and contiguous");
}

void check_summable(const at::Tensor& x, std::string_view what) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble || type == at::kLong, "[comm] ", what,
              ": sums are made in fp32, fp64 or int64, got ", x.dtype().name());
}

int64_t rows_of(const std::vector<int64_t>& counts) {
  int64_t rows = 0;
  for (const int64_t count : counts) rows += count;
  return rows;
}

int64_t row_bytes(const at::Tensor& x) {
  int64_t elements = 1;
  for (int64_t d = 1; d < x.dim(); ++d) elements *= x.size(d);
  return elements * static_cast<int64_t>(x.element_size());
}

// Adds or takes the largest of the parts, in their order.
void reduce_parts(const at::Tensor& target, const at::Tensor& parts, int64_t first, Reduction reduction) {
  for (int64_t r = first; r < parts.size(0); ++r) {
    if (reduction == Reduction::kSum) {
      target.add_(parts[r]);
    } else {
      at::maximum_out(const_cast<at::Tensor&>(target), target, parts[r]);
    }
  }
}

}  // namespace

void Pending::wait() {
  if (!work_) return;
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Work> work = std::move(work_);
  work->wait();
  if (finish_) std::exchange(finish_, {})();
  traffic_->overlap_seconds += std::chrono::duration<double>(start - started_).count();
  traffic_->wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Comm::Comm(std::shared_ptr<Transport> transport, std::string name)
    : transport_(std::move(transport)), name_(std::move(name)) {}

std::string Comm::describe(std::string_view collective, std::string_view what) const {
  const std::string place = *step_ > 0 ? text(", step ", *step_) : std::string();
  return text("rank ", rank(), " of group '", name_, "'", place, ", ", collective, " '", what, "'");
}

Traffic& Comm::count(std::string_view collective, std::string_view what, int64_t bytes_sent) {
  const std::string key = text(collective, " ", what);
  Traffic& traffic = traffic_[key];
  traffic.calls += 1;
  traffic.bytes_sent += bytes_sent;
  return traffic;
}

namespace {

// Adds where and in which collective to the error of a movement.
class DescribedWork : public Work {
 public:
  DescribedWork(std::unique_ptr<Work> work, std::function<std::string()> describe)
      : work_(std::move(work)), describe_(std::move(describe)) {}

  void wait() override {
    try {
      work_->wait();
    } catch (const PeerError& error) {
      throw PeerError(text(describe_(), ": ", error.what()));
    }
  }

 private:
  std::unique_ptr<Work> work_;
  std::function<std::string()> describe_;
};

}  // namespace

template <typename Start>
Pending Comm::begin(std::string_view collective, std::string_view what, int64_t bytes_sent, const Start& start) {
  Pending pending;
  pending.traffic_ = &count(collective, what, bytes_sent);
  pending.started_ = std::chrono::steady_clock::now();
  const auto describe_now = [this, collective, what = std::string(what)] { return describe(collective, what); };
  try {
    pending.work_ = std::make_unique<DescribedWork>(start(), describe_now);
  } catch (const PeerError& error) {
    throw PeerError(text(describe_now(), ": ", error.what()));
  }
  return pending;
}

Pending Comm::start_all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) {
  check_contiguous(output, what);
  check_contiguous(input, what);
  TORCH_CHECK(output.scalar_type() == input.scalar_type() && output.numel() == size() * input.numel(),
              "[comm] all_gather '", what, "': expected an output of ", size(), " times ", input.numel(),
              " elements of ", input.dtype().name(), ", got ", output.numel(), " of ", output.dtype().name());
  const auto bytes = static_cast<int64_t>(input.nbytes());
  return begin("all_gather", what, bytes * (size() - 1),
               [&] { return transport_->all_gather(bytes_of(output), bytes_of(input), what); });
}

void Comm::all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) {
  start_all_gather(output, input, what).wait();
}

Pending Comm::start_reduce_scatter_add(const at::Tensor& shard, const at::Tensor& input, std::string_view what) {
  check_contiguous(shard, what);
  check_contiguous(input, what);
  check_summable(shard, what);
  const int64_t unit = size() * shard.numel(), summands = unit == 0 ? 1 : input.numel() / unit;
  TORCH_CHECK(input.scalar_type() == shard.scalar_type() && input.numel() == summands * unit,
              "[comm] reduce_scatter_add '", what, "': expected an input of a multiple of ", size(), " times ",
              shard.numel(), " elements of ", shard.dtype().name(), ", got ", input.numel(), " of ",
              input.dtype().name());
  const at::Tensor parts = at::empty({size(), summands * shard.numel()}, input.options());
  const std::vector<int64_t> ones(size(), 1);
  const auto bytes = static_cast<int64_t>(shard.nbytes()) * summands;
  Pending pending = begin("reduce_scatter", what, bytes * (size() - 1),
                          [&] { return transport_->all_to_all(parts, input.view(parts.sizes()), ones, ones, what); });
  pending.finish_ = [shard, sums = parts.view({size() * summands, shard.numel()})] {
    reduce_parts(shard.view({-1}), sums, 0, Reduction::kSum);
  };
  return pending;
}

void Comm::reduce_scatter_add(const at::Tensor& shard, const at::Tensor& input, std::string_view what) {
  start_reduce_scatter_add(shard, input, what).wait();
}

Pending Comm::start_all_to_all(const at::Tensor& output, const at::Tensor& input,
                               const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                               std::string_view what) {
  check_contiguous(output, what);
  check_contiguous(input, what);
  TORCH_CHECK(static_cast<int>(output_rows.size()) == size() && static_cast<int>(input_rows.size()) == size(),
              "[comm] all_to_all '", what, "': expected one count per rank of ", size());
  TORCH_CHECK(output.dim() > 0 && input.dim() > 0 && output.scalar_type() == input.scalar_type() &&
                  row_bytes(output) == row_bytes(input) && output.size(0) == rows_of(output_rows) &&
                  input.size(0) == rows_of(input_rows),
              "[comm] all_to_all '", what, "': tensors of ", output.sizes(), " and ", input.sizes(),
              " do not agree with the counts of rows, ", rows_of(output_rows), " and ", rows_of(input_rows));
  const int64_t bytes = row_bytes(input) * (input.size(0) - input_rows[rank()]);
  return begin("all_to_all", what, bytes,
               [&] { return transport_->all_to_all(output, input, output_rows, input_rows, what); });
}

void Comm::all_to_all(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_rows,
                      const std::vector<int64_t>& input_rows, std::string_view what) {
  start_all_to_all(output, input, output_rows, input_rows, what).wait();
}

void Comm::all_reduce(const at::Tensor& x, Reduction reduction, std::string_view what) {
  check_contiguous(x, what);
  check_summable(x, what);
  if (size() == 1) return;
  const at::Tensor flat = x.view({-1});
  const auto bytes = static_cast<int64_t>(x.nbytes());
  if (bytes <= kSmallBytes) {
    const at::Tensor parts = at::empty({size(), flat.numel()}, x.options());
    begin("all_reduce", what, bytes * (size() - 1), [&] {
      return transport_->all_gather(bytes_of(parts), bytes_of(flat), what);
    }).wait();
    flat.copy_(parts[0]);
    reduce_parts(flat, parts, 1, reduction);
    return;
  }
  // Everyone reduces one part and hands it to the others: each element travels twice, whatever the number of ranks.
  const int64_t part = (flat.numel() + size() - 1) / size();
  const at::Tensor padded = at::zeros({size(), part}, x.options());
  padded.view({-1}).narrow(0, 0, flat.numel()).copy_(flat);
  const at::Tensor parts = at::empty_like(padded);
  const std::vector<int64_t> ones(size(), 1);
  const int64_t part_bytes = part * static_cast<int64_t>(x.element_size());
  begin("all_reduce", what, part_bytes * (size() - 1), [&] {
    return transport_->all_to_all(parts, padded, ones, ones, what);
  }).wait();
  const at::Tensor own = parts[0].clone();
  reduce_parts(own, parts, 1, reduction);
  Pending gather = begin("all_reduce", what, part_bytes * (size() - 1),
                         [&] { return transport_->all_gather(bytes_of(padded), bytes_of(own), what); });
  gather.traffic_->calls -= 1;  // the second half of one call
  gather.wait();
  flat.copy_(padded.view({-1}).narrow(0, 0, flat.numel()));
}

void Comm::broadcast(const at::Tensor& data, int root, std::string_view what) {
  check_contiguous(data, what);
  TORCH_CHECK(root >= 0 && root < size(), "[comm] broadcast '", what, "': there is no rank ", root, " of ", size());
  const auto bytes = static_cast<int64_t>(data.nbytes());
  begin("broadcast", what, rank() == root ? bytes * (size() - 1) : 0, [&] {
    return transport_->broadcast(bytes_of(data), root, what);
  }).wait();
}

std::vector<std::string> Comm::all_gather_text(const std::string& text, std::string_view what) {
  const at::Tensor lengths = at::empty({size()}, at::kLong);
  all_gather(lengths, at::full({1}, static_cast<int64_t>(text.size()), at::kLong), what);
  // Everybody sends as much as the longest text: these are small.
  const int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());
  const at::Tensor mine = at::zeros({longest}, at::kByte), all = at::empty({size(), longest}, at::kByte);
  std::memcpy(mine.data_ptr(), text.data(), text.size());
  all_gather(all, mine, what);
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r) {
    texts.emplace_back(all[r].const_data_ptr<uint8_t>(), all[r].const_data_ptr<uint8_t>() + lengths[r].item<int64_t>());
  }
  return texts;
}

void Comm::barrier(std::string_view what) {
  const at::Tensor all = at::empty({size()}, at::kByte);
  begin("barrier", what, 0, [&] { return transport_->all_gather(all, at::zeros({1}, at::kByte), what); }).wait();
}

std::shared_ptr<Comm> Comm::subgroup(const std::vector<int>& members, const std::string& name) {
  const auto group = std::make_shared<Comm>(transport_->subgroup(members, name), name);
  group->step_ = step_;
  return group;
}

}  // namespace asterism::dist
