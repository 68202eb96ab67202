#include "asterism/data/index_cache.h"

#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/fingerprint.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// An index file: the entries, a description in JSON, and this at the end.
struct Trailer {
  uint64_t entries = 0;
  uint64_t description_bytes = 0;
  uint64_t check = 0;  // of all in front of the trailer
  char magic[8] = {'A', 'S', 'T', 'I', 'N', 'D', 'X', '1'};
};
static_assert(sizeof(Trailer) == 32);

constexpr size_t kExcerptCharacters = 200;
constexpr size_t kBufferedEntries = 4096;
constexpr size_t kBlockBytes = kBufferedEntries * sizeof(SampleEntry);

/// What an index is of: an index with another description is not used.
Json describe_files(const std::vector<DataFile>& files) {
  Json list = Json::array();
  for (const DataFile& file : files) {
    list.push_back({{"path", fs::absolute(file.path).lexically_normal().string()},
                    {"source", file.source},
                    {"seekable", file.seekable},
                    {"bytes", file.stamp.bytes},
                    {"modified_ns", file.stamp.modified_ns}});
  }
  return list;
}

Json describe_report(const PreparationReport& report) {
  return {{"rows", report.rows},
          {"bad_rows", report.bad_rows},
          {"bad_by_category", report.bad_by_category},
          {"first_bad", report.first_bad},
          {"kept", report.fit.kept},
          {"dropped", report.fit.dropped},
          {"truncated", report.fit.truncated},
          {"tokens_lost", report.fit.tokens_lost},
          {"trained_tokens_lost", report.fit.trained_tokens_lost},
          {"without_targets", report.fit.without_targets},
          {"samples", report.samples},
          {"tokens", report.tokens},
          {"trained_tokens", report.trained_tokens}};
}

PreparationReport parse_report(const Json& json) {
  PreparationReport report;
  json.at("rows").get_to(report.rows);
  json.at("bad_rows").get_to(report.bad_rows);
  json.at("bad_by_category").get_to(report.bad_by_category);
  json.at("first_bad").get_to(report.first_bad);
  json.at("kept").get_to(report.fit.kept);
  json.at("dropped").get_to(report.fit.dropped);
  json.at("truncated").get_to(report.fit.truncated);
  json.at("tokens_lost").get_to(report.fit.tokens_lost);
  json.at("trained_tokens_lost").get_to(report.fit.trained_tokens_lost);
  json.at("without_targets").get_to(report.fit.without_targets);
  json.at("samples").get_to(report.samples);
  json.at("tokens").get_to(report.tokens);
  json.at("trained_tokens").get_to(report.trained_tokens);
  return report;
}

/// Of the bytes in front of the trailer, in the blocks in which they are written.
uint64_t check_of(std::string_view content, uint64_t entries) {
  Fingerprint check;
  for (uint64_t block = 0; block < entries / kBufferedEntries; ++block) {
    check.add(content.substr(0, kBlockBytes));
    content.remove_prefix(kBlockBytes);
  }
  check.add(content);
  return check.value();
}

std::string_view bytes_of(const SampleEntry& entry) {
  return {reinterpret_cast<const char*>(&entry), sizeof(entry)};
}

/// Files are named by what they are of, apart from sizes and times: a changed file replaces its old index.
std::string name_of(const std::vector<DataFile>& files, const std::string& settings) {
  Fingerprint name;
  name.add(settings);
  for (const Json& file : describe_files(files)) {
    name.add(file.at("path").get_ref<const std::string&>());
    name.add(file.at("source").get<uint64_t>());
  }
  return name.text();
}

/// A file under construction beside its place, removed unless it is published.
class StagedFile {
 public:
  explicit StagedFile(fs::path target)
      : target_(std::move(target)),
        staging_(text(target_.string(), ".tmp-", ::getpid(), "-", std::random_device()())),
        writer_(std::in_place, staging_) {}
  ~StagedFile() {
    writer_.reset();
    std::error_code ignored;
    fs::remove(staging_, ignored);
  }
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void write(std::string_view bytes) { writer_->write(bytes); }

  void publish() {
    writer_->close();
    std::error_code failure;
    fs::rename(staging_, target_, failure);
    if (failure) run_error(target_.string(), ": cannot replace: ", failure.message());
    sync_path(target_.parent_path());
  }

 private:
  fs::path target_, staging_;
  std::optional<FileWriter> writer_;
};

/// The rejected row as a line of rejected_rows.jsonl.
std::string rejected_line(const DataFile& file, const RawRow& row, const RowError& error) {
  const Json line = {{"file", file.path.string()},
                     {"line", row.number},
                     {"category", error.category()},
                     {"message", error.explanation()},
                     {"row", readable_prefix(row.text, kExcerptCharacters)}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Writes an index into the cache while the rows are read.
class IndexWriter {
 public:
  IndexWriter(const fs::path& index, fs::path rejected) : index_(index), rejected_path_(std::move(rejected)) {}

  void add(const SampleEntry& entry) {
    buffer_.append(bytes_of(entry));
    ++trailer_.entries;
    if (buffer_.size() == kBlockBytes) flush();
  }

  void reject(const DataFile& file, const RawRow& row, const RowError& error) {
    if (!rejected_) rejected_.emplace(rejected_path_);
    rejected_->write(rejected_line(file, row, error));
  }

  /// The rejected rows appear first: an index is never without them.
  void publish(const Json& description) {
    if (rejected_) {
      rejected_->publish();
    } else {
      fs::remove(rejected_path_);  // of an index that this one replaces
    }
    const std::string words = description.dump(-1, ' ', false, Json::error_handler_t::replace);
    buffer_ += words;
    trailer_.description_bytes = words.size();
    flush();
    trailer_.check = check_.value();
    index_.write({reinterpret_cast<const char*>(&trailer_), sizeof(trailer_)});
    index_.publish();
  }

 private:
  void flush() {
    check_.add(buffer_);
    index_.write(buffer_);
    buffer_.clear();
  }

  StagedFile index_;
  fs::path rejected_path_;
  std::optional<StagedFile> rejected_;
  Trailer trailer_;
  std::string buffer_;
  Fingerprint check_;
};

Json description_of(const std::vector<DataFile>& files, const std::string& settings) {
  return {{"settings", settings}, {"files", describe_files(files)}};
}

/// Why an index that lies in the cache cannot be used.
class UnusableIndex : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The description in a mapped index file. UnusableIndex when the file is damaged.
Json read_description(const MappedFile& file) {
  Trailer trailer;
  const uint64_t size = file.size();
  if (size < sizeof(trailer)) throw UnusableIndex("it is damaged (too short)");
  std::memcpy(&trailer, file.data() + size - sizeof(trailer), sizeof(trailer));
  if (std::memcmp(trailer.magic, Trailer().magic, sizeof(trailer.magic)) != 0) {
    throw UnusableIndex("it is damaged or of another version");
  }
  const uint64_t content = size - sizeof(trailer);
  if (trailer.entries > content / sizeof(SampleEntry) ||
      content - trailer.entries * sizeof(SampleEntry) != trailer.description_bytes ||
      check_of(file.text().substr(0, content), trailer.entries) != trailer.check) {
    throw UnusableIndex("it is damaged");
  }
  Json description = Json::parse(file.text().substr(trailer.entries * sizeof(SampleEntry), trailer.description_bytes));
  if (description.at("report").at("samples") != trailer.entries) throw UnusableIndex("it is damaged");
  return description;
}

/// Which file has changed since the description was made.
std::string first_change(const Json& old_files, const Json& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    if (i < old_files.size() && old_files[i] == files[i]) continue;
    return files[i].at("path").get<std::string>() + " was changed since";
  }
  return "there were more files then";
}

/// UnusableIndex when the file cannot be used.
std::shared_ptr<const DataIndex> open_index(const fs::path& path, const std::vector<DataFile>& files,
                                            const std::string& settings) {
  auto mapped = MappedFile::open(path);
  const Json description = read_description(*mapped);
  const Json wanted = description_of(files, settings);
  if (description.at("settings") != wanted.at("settings")) throw UnusableIndex("it was made with other settings");
  if (description.at("files") != wanted.at("files")) {
    throw UnusableIndex(first_change(description.at("files"), wanted.at("files")));
  }
  auto index = std::make_shared<const DataIndex>(files, parse_report(description.at("report")), std::move(mapped));
  return index;
}

/// The folder of the cache. Unless it is kept, what had to be created is removed again when it has stayed empty.
class CacheFolder {
 public:
  explicit CacheFolder(const fs::path& folder) {
    for (fs::path missing = fs::absolute(folder).lexically_normal(); !fs::exists(missing);) {
      created_.push_back(missing);
      missing = missing.parent_path();
    }
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) {
      input_error(folder.string(), ": cannot create the folder for the index of the data: ", failure.message(),
                  "; choose another output in the recipe");
    }
  }
  ~CacheFolder() {
    std::error_code not_empty;
    for (const fs::path& folder : created_) fs::remove(folder, not_empty);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  void keep() { created_.clear(); }

 private:
  std::vector<fs::path> created_;  // the deepest first
};

/// The preparation pass with its index in memory.
PreparedData prepare_in_memory(const std::vector<DataFile>& files, const PreparationOptions& options,
                               PreparationHooks hooks) {
  std::vector<SampleEntry> entries;
  hooks.on_entry = [&](const SampleEntry& entry) { entries.push_back(entry); };
  PreparationReport report = prepare(files, options, hooks);
  return {std::make_shared<const DataIndex>(files, std::move(report), std::move(entries)), {}, false, {}};
}

}  // namespace

PreparedData prepare_data(const std::vector<DataSource>& sources, const PreparationOptions& options,
                          const IndexPlace& place, const std::function<void(int64_t rows)>& on_progress) {
  return prepare_files(list_files(sources), options, place, on_progress);
}

PreparedData prepare_files(const std::vector<DataFile>& files, const PreparationOptions& options,
                           const IndexPlace& place, const std::function<void(int64_t rows)>& on_progress) {
  PreparationHooks hooks;
  hooks.on_progress = on_progress;
  if (place.folder.empty()) return prepare_in_memory(files, options, hooks);

  CacheFolder folder(place.folder);
  const std::string name = name_of(files, place.settings);
  const fs::path path = place.folder / (name + ".index"), rejected = place.folder / (name + ".rejected.jsonl");
  PreparedData data;
  const auto open = [&] {
    data.index = open_index(path, files, place.settings);
    const bool complete = data.index->report().bad_rows == 0 || fs::exists(rejected);
    if (!complete) throw UnusableIndex("the file of rejected rows beside it is gone");
    if (data.index->report().bad_rows > 0) data.rejected_rows = rejected;
  };
  if (fs::exists(path)) {
    try {
      open();
      data.from_cache = true;
      return data;
    } catch (const UnusableIndex& reason) {
      data.cache_note = reason.what();
    }
  }
  IndexWriter writer(path, rejected);
  hooks.on_entry = [&](const SampleEntry& entry) { writer.add(entry); };
  hooks.on_bad_row = [&](const DataFile& file, const RawRow& row, const RowError& error) {
    writer.reject(file, row, error);
  };
  Json description = description_of(files, place.settings);
  description["report"] = describe_report(prepare(files, options, hooks));
  writer.publish(description);
  folder.keep();
  open();
  return data;
}

}  // namespace asterism::data
