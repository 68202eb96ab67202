#include "asterism/ops/packed_matmul.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

constexpr int64_t kTileValues = int64_t{1} << 18;
constexpr int64_t kTileWidth = 128, kLeastTileWidth = 16;
constexpr int64_t kTaskRows = 512;

// A stretch of the weight's free dimension (rows of W for x Wᵀ, columns for x W) against some rows of x.
struct TileTask {
  int64_t matrix, first_row, rows, first, width;
  int64_t work() const { return rows * width; }
};

std::vector<TileTask> make_tile_tasks(at::ArrayRef<RowRange> ranges, int64_t free, int64_t summed) {
  const int64_t fitting = kTileValues / std::max<int64_t>(1, summed) / kLeastTileWidth * kLeastTileWidth;
  const int64_t width = std::clamp(fitting, kLeastTileWidth, kTileWidth);
  std::vector<TileTask> tasks;
  for (const RowRange& range : ranges) {
    for (int64_t row = 0; row < range.count; row += kTaskRows) {
      const int64_t rows = std::min(kTaskRows, range.count - row);
      for (int64_t first = 0; first < free; first += width) {
        tasks.push_back({range.matrix, range.first + row, rows, first, std::min(width, free - first)});
      }
    }
  }
  // The longest first, so that no thread is left alone with one of them.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const TileTask& a, const TileTask& b) { return a.work() > b.work(); });
  return tasks;
}

// The calling thread's buffer as a matrix. It grows to the largest tile and is kept: fresh pages cost more than a tile.
at::Tensor tile_scratch(int64_t rows, int64_t columns, at::ScalarType type) {
  thread_local at::Tensor buffer;
  const int64_t bytes = rows * columns * static_cast<int64_t>(c10::elementSize(type));
  if (!buffer.defined() || buffer.numel() < bytes) buffer = at::empty({bytes}, at::kByte);
  return buffer.narrow(0, 0, bytes).view(type).view({rows, columns});
}

// A product must run on one thread to have the same bits for any number of them. Inside of a parallel region it does;
// a range of one would not open a region, hence two.
template <typename Run>
void run_tile_tasks(const std::vector<TileTask>& tasks, const Run& run) {
  std::atomic<size_t> next{0};
  at::parallel_for(0, std::max(2, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    const at::NoGradGuard no_grad;  // threads of the pool have a mode of their own
    for (size_t i = next++; i < tasks.size(); i = next++) run(tasks[i]);
  });
}

enum class PackedSide { kNt, kNn };

at::Tensor multiply_packed(const at::Tensor& x, const PackedMatrix& w, at::ArrayRef<RowRange> ranges, PackedSide side) {
  const int64_t summed = side == PackedSide::kNt ? w.columns() : w.rows(),
                free = side == PackedSide::kNt ? w.rows() : w.columns();
  TORCH_CHECK(x.dim() == 2 && x.size(1) == summed, "[packed_matmul] x must be [R, ", summed, "], got ", x.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor left = x.to(product_type(x.scalar_type()));
  int64_t covered = 0;
  for (const RowRange& range : ranges) covered += range.count;
  TORCH_CHECK(covered == x.size(0), "[packed_matmul] the ranges must cover all ", x.size(0), " rows, they have ",
              covered);
  const at::Tensor y = at::empty({x.size(0), free}, left.options());
  run_tile_tasks(make_tile_tasks(ranges, free, summed), [&](const TileTask& task) {
    const Tile tile =
        side == PackedSide::kNt ? Tile{task.first, task.width, 0, summed} : Tile{0, summed, task.first, task.width};
    const at::Tensor values = tile_scratch(tile.rows, tile.columns, left.scalar_type());
    w.decode_tile(task.matrix, tile, values);
    matmul_nt_out(y.narrow(0, task.first_row, task.rows).narrow(1, task.first, task.width),
                  left.narrow(0, task.first_row, task.rows), side == PackedSide::kNt ? values : values.t());
  });
  return y.to(x.scalar_type());
}

}  // namespace

at::Tensor packed_matmul_nt(const at::Tensor& x_RK, const PackedMatrix& w, at::ArrayRef<RowRange> ranges) {
  return multiply_packed(x_RK, w, ranges, PackedSide::kNt);
}

at::Tensor packed_matmul_nn(const at::Tensor& x_RN, const PackedMatrix& w, at::ArrayRef<RowRange> ranges) {
  return multiply_packed(x_RN, w, ranges, PackedSide::kNn);
}

}  // namespace asterism::ops
