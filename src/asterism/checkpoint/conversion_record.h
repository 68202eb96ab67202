#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace asterism::checkpoint {

/// A file that a conversion has completed.
struct ConvertedFile {
  uint64_t bytes = 0;
  uint32_t checksum = 0;                   // CRC-32C
  nlohmann::ordered_json loss;             // what its tensors lost
  nlohmann::ordered_json edits = nullptr;  // what an edit did to them
};

/// The folder of a conversion under way: <target>.incomplete, with a journal of completed files in conversion.jsonl.
/// One process at a time holds it.
class ConversionRecord {
 public:
  /// Makes the folder, or continues in it. InputError when it belongs to another request, when another process works in
  /// it, or when `target` exists and is not the result of this very request (is_complete() is true if it is).
  ConversionRecord(std::filesystem::path target, nlohmann::ordered_json request);
  ~ConversionRecord();
  ConversionRecord(const ConversionRecord&) = delete;
  ConversionRecord& operator=(const ConversionRecord&) = delete;

  bool is_complete() const { return complete_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// By name.
  const std::map<std::string, ConvertedFile>& files() const { return files_; }
  /// Notes a file that is complete and synced; the note survives a crash.
  void add(const std::string& name, ConvertedFile file);
  /// Writes conversion.json in place of the journal and renames the folder to the target.
  void publish();

 private:
  void resume();
  void append(const nlohmann::ordered_json& line);

  std::filesystem::path target_, folder_;
  nlohmann::ordered_json request_;
  std::map<std::string, ConvertedFile> files_;
  int lock_ = -1;
  bool complete_ = false;
};

/// The files of a finished conversion. InputError when the folder has no conversion.json or it is damaged.
std::map<std::string, ConvertedFile> converted_files(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
