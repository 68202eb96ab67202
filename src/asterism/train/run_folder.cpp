#include "asterism/train/run_folder.h"

#include <algorithm>
#include <optional>

#include "asterism/core/error.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"

namespace asterism::train {
namespace fs = std::filesystem;

namespace {

void create_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    input_error(folder.string(), ": cannot create the folder of the run: ", failure.message(),
                "; choose another output or name in the recipe");
  }
}

std::optional<int64_t> step_of_line(std::string_view line) {
  const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return std::nullopt;
  const auto step = row.find("step");
  if (step == row.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

/// The lines of `content` for steps up to `last_step`.
std::string lines_up_to(std::string_view content, int64_t last_step, const std::string& origin) {
  std::string kept;
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = content.substr(at, end - at);
    at = end + 1;
    ++number;
    const auto step = step_of_line(line);
    if (!step) log_warning(origin, ":", number, ": removed a line that is not a JSON object with a step");
    if (step && *step <= last_step) kept.append(line).push_back('\n');
  }
  return kept;
}

const fs::path& cut_metrics(const fs::path& path, int64_t last_step) {
  if (!fs::exists(path)) return path;
  const std::string content = read_text(path);
  const std::string kept = lines_up_to(content, last_step, path.string());
  if (kept != content) write_text_atomically(path, kept);
  return path;
}

}  // namespace

void RunFolder::create() const {
  create_folder(root_);
  create_folder(checkpoints_folder());
}

void RunFolder::tidy() const {
  remove_leftovers(root_);
}

void RunFolder::write_recipe(std::string_view yaml) const {
  write_text_atomically(recipe_file(), yaml);
}

void RunFolder::write_report(const nlohmann::ordered_json& report) const {
  write_text_atomically(report_file(), report.dump(2) + "\n");
}

MetricsFile::MetricsFile(const fs::path& path, int64_t last_step)
    : writer_(cut_metrics(path, last_step), FileWriter::Mode::kAppend) {
  sync_path(path.parent_path());  // the name of a new file, too, must outlive a crash
  bytes_ = fs::file_size(path);
}

void MetricsFile::append(const nlohmann::ordered_json& row) {
  if (!row.is_object() || !row.contains("step") || !row.at("step").is_number_integer()) {
    throw std::logic_error("a row of metrics needs a whole number as step: " + row.dump());
  }
  const std::string line = row.dump() + "\n";
  writer_.write(line);
  bytes_ += line.size();
}

}  // namespace asterism::train
