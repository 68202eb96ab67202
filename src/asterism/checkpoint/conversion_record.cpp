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

std::pair<std::string, ConvertedFile> parse_file_record(const Record& record) {
  return {record.at("file").get<std::string>(),
          {record.at("bytes").get<uint64_t>(), record.at("crc32c").get<uint32_t>(), record.at("loss"),
           record.value("edits", Record())}};
}

Record read_record(const fs::path& folder) {
  const fs::path path = folder / kRecordName;
  try {
    Record record = Record::parse(read_text(path));
    if (record.at("version") == kRecordVersion) return record;
    input_error(path.string(), ": version ", record.at("version").dump(), ", expected ", kRecordVersion);
  } catch (const nlohmann::json::exception& error) {
    input_error(path.string(), ": not the record of a conversion: ", error.what());
  }
}

std::string difference(const Record& before, const Record& now) {
  const auto word = [](const Record& record, const std::string& key) {
    return record.contains(key) ? record[key].dump() : "nothing";
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
  if (fs::exists(target_)) {
    const bool mine = fs::exists(target_ / kRecordName) && read_record(target_).at("request") == request_;
    if (!mine) input_error(target_.string(), ": exists already; choose another folder or remove it first");
    files_ = converted_files(target_);
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
  const fs::path journal = folder_ / kConversionJournal;
  std::optional<Record> before;
  if (fs::exists(folder_ / kRecordName)) {  // killed between the record and the folder's new name
    before = read_record(folder_).at("request");
    files_ = converted_files(folder_);
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
      const Record record = Record::parse(line);
      if (record.contains("request")) {
        before = record["request"];
      } else {
        files_.insert(parse_file_record(record));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    input_error(journal.string(), ": damaged (", error.what(), "); remove the folder and convert again");
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
  fs::remove(folder_ / kConversionJournal);
  sync_path(folder_);
  std::error_code failure;
  fs::rename(folder_, target_, failure);
  if (failure) run_error(target_.string(), ": cannot publish: ", failure.message());
  sync_path(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
  complete_ = true;
}

std::map<std::string, ConvertedFile> converted_files(const fs::path& folder) {
  std::map<std::string, ConvertedFile> files;
  try {
    const Record record = read_record(folder);
    for (const Record& file : record.at("files")) files.insert(parse_file_record(file));
  } catch (const nlohmann::json::exception& error) {
    input_error((folder / kRecordName).string(), ": not the record of a conversion: ", error.what());
  }
  return files;
}

}  // namespace asterism::checkpoint
