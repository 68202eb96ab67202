#include "asterism/checkpoint/shard_writer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "asterism/checkpoint/recoding.h"
#include "asterism/core/crc32c.h"
#include "asterism/core/error.h"
#include "asterism/core/positioned_file.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kChunkValues = int64_t{1} << 21;  // 8 MB in fp32
constexpr int64_t kChunkRows = 128;                 // blocks of FP8 are never cut

/// Rows and columns of the matrices of a target, and how many there are.
struct Extent {
  int64_t experts = 1, matrices = 1, rows = 1, columns = 1;

  explicit Extent(const TargetTensor& target) {
    const auto& shape = target.shape;
    if (shape.size() == 3) {
      experts = shape[0];
      matrices = target.matrices;
      rows = shape[1] / matrices;
      columns = shape[2];
    } else {
      columns = shape.empty() ? 1 : shape.back();
      for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    }
  }
};

void append_chunks(const TargetTensor& target, size_t number, std::vector<Chunk>& chunks) {
  const Extent extent(target);
  const int64_t per_chunk = kChunkValues / std::max<int64_t>(extent.columns, 1) / kChunkRows * kChunkRows;
  const int64_t step = std::max(per_chunk, kChunkRows);
  for (int64_t expert = 0; expert < extent.experts; ++expert) {
    for (int64_t matrix = 0; matrix < extent.matrices; ++matrix) {
      for (int64_t row = 0; row < extent.rows; row += step) {
        chunks.push_back({number, expert, matrix, row, std::min(step, extent.rows - row), extent.columns});
      }
    }
  }
}

/// A piece of a file that is written, and its checksum.
struct Written {
  uint64_t offset = 0, bytes = 0;
  uint32_t checksum = 0;
};

/// A file while its chunks come in.
struct OpenFile {
  std::optional<PositionedWriter> writer;
  std::vector<Written> written;
  size_t missing = 0;  // chunks
};

class Writing {
 public:
  Writing(const fs::path& folder, const std::vector<TargetTensor>& targets, const ShardPlan& plan,
          const FillChunk& fill, const ShardWriterOptions& options)
      : folder_(folder), targets_(targets), plan_(plan), fill_(fill), options_(options), files_(plan.files.size()) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const size_t file = plan.placements[i].file;
      if (is_skipped(file)) continue;
      const size_t before = chunks_.size();
      append_chunks(targets[i], i, chunks_);
      files_[file].missing += chunks_.size() - before;
    }
    for (size_t i = 0; i < files_.size(); ++i) {
      if (is_skipped(i)) bytes_done_ += plan.files[i].bytes;
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (int worker = 1; worker < options_.workers; ++worker) {
      threads.emplace_back([this, worker] { work(worker); });
    }
    work(0);
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  bool is_skipped(size_t file) const { return options_.skip.contains(plan_.files[file].name); }

  void work(int worker) {
    std::vector<std::byte> data, scale;
    try {
      for (size_t next = next_++; next < chunks_.size() && !stop_; next = next_++) {
        write_chunk(chunks_[next], worker, data, scale);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void write_chunk(const Chunk& chunk, int worker, std::vector<std::byte>& data, std::vector<std::byte>& scale) {
    const TargetTensor& target = targets_[chunk.target];
    const Placement& place = plan_.placements[chunk.target];
    const Extent extent(target);
    const int64_t matrix = chunk.expert * extent.matrices + chunk.matrix;
    const Form& form = target.form;
    // Buffers only grow: resizing down and up again would clear bytes that are written anyway.
    const uint64_t num_data = data_bytes(form, chunk.rows, chunk.columns);
    const uint64_t num_scale = scale_bytes(form, chunk.rows, chunk.columns);
    if (data.size() < num_data) data.resize(num_data);
    if (scale.size() < num_scale) scale.resize(num_scale);
    fill_(target, chunk, data.data(), form.is_coded() ? scale.data() : nullptr, worker);

    PositionedWriter& writer = open(place.file);
    const auto put = [&](const std::vector<std::byte>& buffer, uint64_t bytes, uint64_t offset) {
      writer.write(buffer.data(), bytes, offset);
      return Written{offset, bytes, crc32c(buffer.data(), bytes)};
    };
    std::vector<Written> written = {put(data, num_data,
                                        place.data + matrix * data_bytes(form, extent.rows, extent.columns) +
                                            data_bytes(form, chunk.row, chunk.columns))};
    if (form.is_coded()) {
      written.push_back(put(scale, num_scale,
                            place.scale + matrix * scale_bytes(form, extent.rows, extent.columns) +
                                scale_bytes(form, chunk.row, chunk.columns)));
    }
    finish_chunk(place.file, written);
  }

  fs::path part_path(size_t file) const { return folder_ / (plan_.files[file].name + ".part"); }

  PositionedWriter& open(size_t file) {
    const std::lock_guard lock(mutex_);
    OpenFile& entry = files_[file];
    if (!entry.writer) {
      const PlannedFile& planned = plan_.files[file];
      entry.writer.emplace(part_path(file), planned.bytes);
      entry.writer->write(planned.header.data(), planned.header.size(), 0);
      entry.written.push_back({0, planned.header.size(), crc32c(planned.header.data(), planned.header.size())});
      bytes_done_ += planned.header.size();
    }
    return *entry.writer;
  }

  void finish_chunk(size_t file, const std::vector<Written>& written) {
    bool complete = false;
    {
      const std::lock_guard lock(mutex_);
      OpenFile& entry = files_[file];
      entry.written.insert(entry.written.end(), written.begin(), written.end());
      for (const Written& piece : written) bytes_done_ += piece.bytes;
      complete = --entry.missing == 0;
      if (options_.on_progress) options_.on_progress(bytes_done_);
    }
    if (complete) finish_file(file);  // its sync takes a while: the other workers go on
  }

  void finish_file(size_t file) {
    OpenFile& entry = files_[file];
    entry.writer->close();
    std::ranges::sort(entry.written, {}, &Written::offset);
    uint32_t checksum = 0;
    for (const Written& piece : entry.written) checksum = crc32c_combine(checksum, piece.checksum, piece.bytes);
    std::error_code failure;
    const fs::path target = folder_ / plan_.files[file].name;
    fs::rename(part_path(file), target, failure);
    if (failure) run_error(target.string(), ": cannot rename the complete file: ", failure.message());
    const std::lock_guard lock(mutex_);
    entry.writer.reset();
    entry.written = {};
    if (options_.on_file) options_.on_file(plan_.files[file], checksum);
  }

  const fs::path& folder_;
  const std::vector<TargetTensor>& targets_;
  const ShardPlan& plan_;
  const FillChunk& fill_;
  const ShardWriterOptions& options_;
  std::vector<Chunk> chunks_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<OpenFile> files_;
  uint64_t bytes_done_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

int default_writer_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) + 1, 2, 16);
}

void write_planned(const fs::path& folder, const std::vector<TargetTensor>& targets, const ShardPlan& plan,
                   const FillChunk& fill, const ShardWriterOptions& options) {
  Writing(folder, targets, plan, fill, options).run();
}

}  // namespace asterism::checkpoint
