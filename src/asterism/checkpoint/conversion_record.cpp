#include "asterism/checkpoint/conversion_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using Record = nlohmann::ordered_json;

namespace {

constexpr const char* kRecordName = "conversion.json";
constexpr int kRecordVersion = 1;

Record file_record(const std::string& name, const ConvertedFile& file) {
  Record record = {{"file", name}, {"bytes", file.bytes}, {"crc32c", file.checksum}, {"loss", file.loss}};
  if (!file.edits.is_null()) record["edits"] = file.edits;
  return record;
}

std::pair<std::string, ConvertedFile> parse_file_record(const Record& record, const fs::path& origin) {
  const auto name = record.at("file").get<std::string>();
  if (!is_plain_file_name(name)) {
    input_error(origin.string(), ": not the record of a conversion: expected the name of a file in this folder, found ",
                shortened(record.dump()));
  }
  return {name,
          {record.at("bytes").get<uint64_t>(), record.at("crc32c").get<uint32_t>(), record.at("loss"),
           record.value("edits", Record())}};
}

/// What conversion.json says.
struct ConversionResult {
  Record request;
  std::map<std::string, ConvertedFile> files;
};

ConversionResult read_record(const fs::path& folder) {
  const fs::path path = folder / kRecordName;
  const Record record = parse_ordered_json(read_text(path), path.string());
  try {
    if (record.at("version") != kRecordVersion) {
      input_error(path.string(), ": not the record of a conversion: expected version ", kRecordVersion, ", found ",
                  shortened(record.at("version").dump()));
    }
    ConversionResult result{.request = record.at("request"), .files = {}};
    for (const Record& file : record.at("files")) result.files.insert(parse_file_record(file, path));
    return result;
  } catch (const nlohmann::json::exception& error) {
    input_error(path.string(), ": not the record of a conversion: ", shortened(error.what()));
  }
}

std::string difference(const Record& before, const Record& now) {
  const auto word = [](const Record& record, const std::string& key) {
    return record.contains(key) ? shortened(record[key].dump()) : std::string("nothing");
  };
  Record keys = now;
  keys.update(before);
  std::string changed;
  for (const auto& [key, value] : keys.items()) {
    if (before.contains(key) && now.contains(key) && before[key] == now[key]) continue;
    changed += text(changed.empty() ? "" : ", ", key, " was ", word(before, key), " and is ", word(now, key));
  }
  return changed;
}

}  // namespace

ConversionRecord::ConversionRecord(fs::path target, Record request)
    : target_(std::move(target)), request_(std::move(request)) {
  if (!target_.has_filename()) target_ = target_.parent_path();
  folder_ = target_.string() + ".incomplete";
  if (path_exists(target_)) {
    std::optional<ConversionResult> record;
    if (path_exists(target_ / kRecordName)) record = read_record(target_);
    if (!record || record->request != request_) {
      input_error(target_.string(), ": exists already; choose another folder or remove it first");
    }
    files_ = std::move(record->files);
    complete_ = true;
    return;
  }
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) run_error(folder_.string(), ": cannot create the folder: ", failure.message());
  const fs::path journal = folder_ / kConversionJournal;
  lock_ = ::open(journal.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) run_error(journal.string(), ": cannot create: ", std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    input_error(folder_.string(), ": another process converts into it; wait for it, or stop it first");
  }
  try {
    resume();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

ConversionRecord::~ConversionRecord() {
  if (lock_ >= 0) ::close(lock_);
}

void ConversionRecord::resume() {
  remove_leftovers(folder_);  // the lock is held: nobody else writes here
  const fs::path journal = folder_ / kConversionJournal;
  std::optional<Record> before;
  if (fs::exists(folder_ / kRecordName)) {  // killed between the record and the folder's new name
    ConversionResult record = read_record(folder_);
    before = std::move(record.request);
    files_ = std::move(record.files);
  }
  // A last line without an end was cut off by the kill: its file counts as not written.
  std::string content = read_text(journal);
  content.resize(content.rfind('\n') + 1);  // npos + 1 is 0
  if (::ftruncate(lock_, static_cast<off_t>(content.size())) != 0) {
    run_error(journal.string(), ": cannot be cut: ", std::strerror(errno));
  }
  try {
    std::istringstream lines(content);
    for (std::string line; std::getline(lines, line);) {
      const Record record = parse_ordered_json(line, journal.string());
      if (record.contains("request")) {
        before = record["request"];
      } else {
        files_.insert(parse_file_record(record, journal));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    input_error(journal.string(), ": damaged (", shortened(error.what()), "); remove the folder and convert again");
  }
  if (before && *before != request_) {
    input_error(folder_.string(), ": belongs to another conversion (", difference(*before, request_),
                "); repeat that one to finish it, or remove the folder");
  }
  if (!before) append({{"request", request_}});
  std::erase_if(files_, [&](const auto& entry) {
    std::error_code missing;
    const uint64_t bytes = fs::file_size(folder_ / entry.first, missing);
    return missing || bytes != entry.second.bytes;
  });
}

void ConversionRecord::append(const Record& line) {
  FileWriter writer(folder_ / kConversionJournal, FileWriter::Mode::kAppend);
  writer.write(line.dump() + "\n");
  writer.close();
}

void ConversionRecord::add(const std::string& name, ConvertedFile file) {
  sync_path(folder_);  // the file's name, before the note of it
  append(file_record(name, file));
  files_[name] = std::move(file);
}

void ConversionRecord::publish() {
  Record record = {{"version", kRecordVersion}, {"request", request_}, {"files", Record::array()}};
  for (const auto& [name, file] : files_) record["files"].push_back(file_record(name, file));
  write_text_atomically(folder_ / kRecordName, record.dump(1) + "\n");
  std::error_code failure;
  fs::remove(folder_ / kConversionJournal, failure);
  if (failure) run_error((folder_ / kConversionJournal).string(), ": cannot remove: ", failure.message());
  sync_path(folder_);
  fs::rename(folder_, target_, failure);
  if (failure) run_error(target_.string(), ": cannot publish: ", failure.message());
  sync_path(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
  complete_ = true;
}

std::map<std::string, ConvertedFile> converted_files(const fs::path& folder) {
  return read_record(folder).files;
}

}  // namespace asterism::checkpoint
