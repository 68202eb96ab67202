#include "asterism/cli/rank_files.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/positioned_file.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLargestSmallFile = 64 << 20;
constexpr uint64_t kSentAtOnce = 4 << 20;

/// A file as it is sent: its first bytes, and its size.
struct SentFile {
  fs::path source;
  std::string name;  // below the folder
  uint64_t head = 0, bytes = 0;
};

uint64_t bytes_before_tensors(const fs::path& path) {
  const auto file = checkpoint::SafetensorsFile::open(path);
  return file.tensors().empty() ? fs::file_size(path) : file.tensors().front().offset;
}

void add_sent_file(const fs::path& source, const std::string& name, std::vector<SentFile>& files) {
  const uint64_t bytes = fs::file_size(source);
  const bool tensors = source.extension() == ".safetensors";
  if (tensors || bytes <= kLargestSmallFile) {
    files.push_back({source, name, tensors ? bytes_before_tensors(source) : bytes, bytes});
  }
}

std::vector<SentFile> files_to_send(const fs::path& path) {
  std::vector<SentFile> files;
  if (!fs::is_directory(path)) {
    add_sent_file(path, path.filename().string(), files);
    return files;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    add_sent_file(entry.path(), entry.path().lexically_relative(path).generic_string(), files);
  }
  std::ranges::sort(files, {}, &SentFile::name);
  return files;
}

nlohmann::json list_of(const std::vector<SentFile>& files) {
  nlohmann::json list = nlohmann::json::array();
  for (const SentFile& file : files) list.push_back({file.name, file.head, file.bytes});
  return list;
}

// Sends the first bytes of a file from rank 0; ranks with a `target` write them there.
void send_head(dist::Comm& world, const SentFile& file, const fs::path& target) {
  std::unique_ptr<PositionedReader> reader;
  std::unique_ptr<PositionedWriter> writer;
  if (world.rank() == 0) reader = std::make_unique<PositionedReader>(file.source);
  if (!target.empty()) {
    fs::create_directories(target.parent_path());
    writer = std::make_unique<PositionedWriter>(target, 0);
  }
  for (uint64_t done = 0; done < file.head; done += kSentAtOnce) {
    const uint64_t count = std::min(kSentAtOnce, file.head - done);
    const at::Tensor bytes = at::empty({static_cast<int64_t>(count)}, at::kByte);
    if (reader) reader->read(bytes.mutable_data_ptr(), count, done);
    world.broadcast(bytes, 0, "files of rank 0");
    if (writer) writer->write(bytes.const_data_ptr(), count, done);
  }
  if (!writer) return;
  writer->close();
  fs::resize_file(target, file.bytes);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "asterism-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) run_error(name, ": cannot create: ", std::strerror(errno));
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

RankFiles find_rank_files(dist::Comm& world, const fs::path& path) {
  RankFiles result{.path = path, .everywhere = true, .scratch = nullptr};
  const bool here = path_exists(path);
  const std::vector<std::string> present = world.all_gather_text(here ? "here" : "", text("who has ", path.string()));
  result.everywhere = std::ranges::find(present, "") == present.end();
  // What rank 0 lacks is an error for whoever opens it.
  if (result.everywhere || present.front().empty()) return result;
  const bool is_first = world.rank() == 0;
  const std::vector<SentFile> own = is_first ? files_to_send(path) : std::vector<SentFile>();
  const bool is_folder = is_first && fs::is_directory(path);
  const nlohmann::json message = {{"folder", is_folder}, {"files", list_of(own)}};
  const auto sent = nlohmann::json::parse(
      world.all_gather_text(is_first ? message.dump() : std::string(), "list of the files of rank 0").front());
  fs::path root;
  if (!here) {
    result.scratch = std::make_shared<ScratchFolder>();
    root = result.scratch->path() / path.filename();
    if (!sent["folder"]) root = result.scratch->path();
    result.path = result.scratch->path() / path.filename();
    if (sent["folder"]) fs::create_directories(root);
  }
  for (size_t i = 0; i < sent["files"].size(); ++i) {
    const nlohmann::json& entry = sent["files"][i];
    const SentFile file{is_first ? own[i].source : fs::path(), entry[0], entry[1], entry[2]};
    send_head(world, file, here ? fs::path() : root / file.name);
  }
  return result;
}

}  // namespace asterism::cli
