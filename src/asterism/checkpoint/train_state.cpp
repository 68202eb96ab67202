#include "asterism/checkpoint/train_state.h"

#include <algorithm>
#include <cstdio>

#include "asterism/checkpoint/manifest.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;

namespace {

constexpr int kFormatVersion = 2;
constexpr const char* kPrefix = "step-";
constexpr const char* kAside = "abandoned-";
constexpr const char* kProbe = "probe";
constexpr const char* kLatest = "latest";

std::string step_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "%s%08lld", kPrefix, static_cast<long long>(step));
  return name;
}

// The step of a folder named by step_name, nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  const std::string digits = name.substr(std::char_traits<char>::length(kPrefix));
  if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

// All but the tensors, and the rename.
void complete(StagedState& staged, const nlohmann::ordered_json& info,
              const std::function<void(const fs::path&)>& extra) {
  const fs::path& staging = staged.folder.staging();
  nlohmann::ordered_json all = {{"format_version", kFormatVersion}};
  all.update(info);
  FileWriter writer(staging / "state.json");
  writer.write(all.dump(1) + "\n");
  writer.close();
  if (extra) extra(staging);
  write_manifest(staging);
  staged.folder.publish();
}

void write_state(const fs::path& target, const TrainState& state, const std::function<void(const fs::path&)>& extra) {
  StagedState staged(target);
  write_safetensors(staged.file(), state.tensors);
  complete(staged, state.info, extra);
}

void remove_abandoned(const fs::path& root) {
  std::vector<fs::path> abandoned;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().filename().string().starts_with(std::string(kAside) + kPrefix)) abandoned.push_back(entry.path());
  }
  for (const fs::path& path : abandoned) {
    log_info("removing ", path.string(), ": this run has checkpoints of its own now");
    remove_folder(path);
  }
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  if (failure) run_error(from.string(), ": cannot rename to ", to.filename().string(), ": ", failure.message());
}

}  // namespace

void StateFolder::tidy() const {
  remove_leftovers(root_);
  if (path_exists(root_ / kProbe)) remove_folder(root_ / kProbe);
  const std::vector<int64_t> existing = steps();
  const std::string newest = existing.empty() ? "" : step_name(existing.back()) + "\n";
  const std::string named = path_exists(root_ / kLatest) ? read_text(root_ / kLatest) : "";
  if (newest == named) return;
  if (!newest.empty()) write_text_atomically(root_ / kLatest, newest);
  if (newest.empty()) fs::remove(root_ / kLatest);
}

std::unique_ptr<StagedState> StateFolder::stage(int64_t step) const {
  return std::make_unique<StagedState>(path_of(step));
}

void StateFolder::save(int64_t step, const TrainState& state, int64_t keep,
                       const std::function<void(const fs::path&)>& extra) const {
  const std::unique_ptr<StagedState> staged = stage(step);
  write_safetensors(staged->file(), state.tensors);
  save(step, *staged, state.info, keep, extra);
}

void StateFolder::save(int64_t step, StagedState& staged, const nlohmann::ordered_json& info, int64_t keep,
                       const std::function<void(const fs::path&)>& extra) const {
  complete(staged, info, extra);
  write_text_atomically(root_ / kLatest, step_name(step) + "\n");
  const std::vector<int64_t> existing = steps();
  const int64_t surplus = static_cast<int64_t>(existing.size()) - std::max<int64_t>(keep, 1);
  for (int64_t i = 0; i < surplus; ++i) remove_folder(path_of(existing[i]));
  remove_abandoned(root_);
}

void StateFolder::probe(const TrainState& state) const {
  const fs::path target = root_ / kProbe;
  write_state(target, state, {});
  try {
    read_train_state(target);
  } catch (const InputError& error) {
    run_error("a trial checkpoint was not read as it was written; the disk or its driver is at fault: ", error.what());
  }
  remove_folder(target);
}

void StateFolder::set_aside_after(int64_t step) const {
  const std::vector<int64_t> existing = steps();
  const auto first_later = std::upper_bound(existing.begin(), existing.end(), step);
  if (first_later == existing.end()) return;
  // The newest last: until then, a killed process leaves the past as it was.
  for (auto later = first_later; later != existing.end(); ++later) {
    const fs::path path = path_of(*later), aside = root_ / (kAside + step_name(*later));
    if (fs::exists(aside)) remove_folder(aside);
    rename_folder(path, aside);
    log_info("set aside ", path.string(), ": the run goes on from step ", step);
  }
  sync_path(root_);
  tidy();
}

std::vector<int64_t> StateFolder::steps() const {
  std::vector<int64_t> found;
  if (!fs::is_directory(root_)) return found;
  for (const auto& entry : fs::directory_iterator(root_)) {
    const auto step = step_of(entry.path().filename().string());
    std::error_code unknown;
    if (step && entry.is_directory(unknown)) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path StateFolder::path_of(int64_t step) const {
  return root_ / step_name(step);
}

nlohmann::ordered_json read_state_info(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) input_error(folder.string(), ": there is no such folder");
  const fs::path info_path = folder / "state.json";
  // The version first: of a later format, not even the manifest need be what this program knows.
  auto parsed = parse_ordered_json(read_text(info_path), info_path.string());
  const auto version = parsed.is_object() ? parsed.find("format_version") : parsed.end();
  if (!parsed.is_object() || version == parsed.end() || *version != kFormatVersion) {
    input_error(info_path.string(), ": expected a checkpoint of format_version ", kFormatVersion, ", found ",
                parsed.is_object() && version != parsed.end() ? shortened(version->dump()) : "none");
  }
  verify_manifest(folder);
  return parsed;
}

TrainState read_train_state(const fs::path& folder) {
  TrainState state{.info = read_state_info(folder), .tensors = {}};
  const SafetensorsFile file = SafetensorsFile::open(folder / "state.safetensors");
  for (const TensorInfo& info : file.tensors()) state.tensors.push_back({info.name, file.view(info.name), {}});
  return state;
}

}  // namespace asterism::checkpoint
