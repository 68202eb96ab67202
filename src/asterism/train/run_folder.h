#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "asterism/core/file.h"

namespace asterism::train {

/// The folder of a run, <output>/<name>: which file lies where.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path recipe_file() const { return root_ / "recipe.yaml"; }
  std::filesystem::path metrics_file() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path tensorboard_folder() const { return root_ / "tensorboard"; }
  std::filesystem::path log_file() const { return root_ / "log.txt"; }
  std::filesystem::path checkpoints_folder() const { return root_ / "checkpoints"; }
  std::filesystem::path adapter_folder() const { return root_ / "adapter"; }
  std::filesystem::path model_folder() const { return root_ / "model"; }
  std::filesystem::path report_file() const { return root_ / "report.json"; }
  std::filesystem::path rejected_rows_file() const { return root_ / "rejected_rows.jsonl"; }

  /// Creates the folder and those that a run always has; existing ones are kept. InputError when that is impossible.
  void create() const;
  /// Removes what writes of a killed process left. Only for the one process that works in the folder.
  void tidy() const;
  void write_recipe(std::string_view yaml) const;
  void write_report(const nlohmann::ordered_json& report) const;

 private:
  std::filesystem::path root_;
};

/// metrics.jsonl: one JSON object per logged step, each with the whole number `step` >= 1 = steps done. A number that
/// is not finite is written as null, which is all JSON has.
class MetricsFile {
 public:
  /// Opens `path` to continue after `last_step` (0 = a run that starts anew): what was logged for later steps is
  /// removed, for these steps run again. So is every line that is not a JSON object with a step, such as a line that a
  /// crash has cut off; each with a warning. InputError when the file cannot be read, RunError when it cannot be
  /// written.
  MetricsFile(const std::filesystem::path& path, int64_t last_step);

  /// Appends a line; it is with the system when this returns, and on the device once the file is synced.
  void append(const nlohmann::ordered_json& row);
  /// Length of the file.
  uint64_t bytes() const { return bytes_; }

 private:
  FileWriter writer_;
  uint64_t bytes_ = 0;
};

}  // namespace asterism::train
