#include "asterism/checkpoint/train_state.h"

#include <algorithm>
#include <cstdio>

#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

constexpr int kFormatVersion = 1;
constexpr const char* kPrefix = "step-";

std::string step_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "%s%08lld", kPrefix, static_cast<long long>(step));
  return name;
}

// The step of a folder named by step_name, nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  const std::string digits = name.substr(std::char_traits<char>::length(kPrefix));
  if (digits.size() < 8 || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoll(digits);
}

}  // namespace

StateFolder::StateFolder(fs::path root) : root_(std::move(root)) {
  if (!fs::is_directory(root_)) return;
  for (const auto& entry : fs::directory_iterator(root_)) {
    // Staging folders of an earlier process: nobody else writes here.
    if (entry.path().filename().string().find(".tmp-") != std::string::npos) fs::remove_all(entry.path());
  }
}

void StateFolder::save(int64_t step, const TrainState& state, int64_t keep,
                       const std::function<void(const fs::path&)>& extra) {
  AtomicFolder folder(path_of(step), /*replace=*/true);
  write_safetensors(folder.staging() / "state.safetensors", state.tensors);
  nlohmann::ordered_json info = state.info;
  info["format_version"] = kFormatVersion;
  info["step"] = step;
  FileWriter writer(folder.staging() / "state.json");
  writer.write(info.dump(1) + "\n");
  writer.close();
  if (extra) extra(folder.staging());
  folder.publish();
  write_text_atomically(root_ / "latest", step_name(step) + "\n");
  std::vector<int64_t> existing = steps();
  const int64_t surplus = static_cast<int64_t>(existing.size()) - std::max<int64_t>(keep, 1);
  for (int64_t i = 0; i < surplus; ++i) fs::remove_all(path_of(existing[i]));
}

std::vector<int64_t> StateFolder::steps() const {
  std::vector<int64_t> found;
  if (!fs::is_directory(root_)) return found;
  for (const auto& entry : fs::directory_iterator(root_)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory()) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path StateFolder::path_of(int64_t step) const {
  return root_ / step_name(step);
}

TrainState read_train_state(const fs::path& folder) {
  TrainState state;
  const fs::path info_path = folder / "state.json";
  try {
    state.info = nlohmann::ordered_json::parse(read_text(info_path));
  } catch (const nlohmann::json::exception& error) {
    input_error(info_path.string(), ": not valid JSON: ", error.what());
  }
  const auto version = state.info.value("format_version", 0);
  if (version != kFormatVersion) {
    input_error(info_path.string(), ": format_version ", version, " cannot be read, expected ", kFormatVersion);
  }
  if (!state.info.contains("step")) input_error(info_path.string(), ": key \"step\" is missing");
  const SafetensorsFile file = SafetensorsFile::open(folder / "state.safetensors");
  for (const TensorInfo& info : file.tensors()) state.tensors.push_back({info.name, file.copy(info.name), {}});
  return state;
}

}  // namespace asterism::checkpoint
