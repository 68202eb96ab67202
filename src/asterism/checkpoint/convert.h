#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "asterism/checkpoint/recoding.h"
#include "asterism/checkpoint/storage.h"
#include "asterism/checkpoint/value_edit.h"

namespace asterism::checkpoint {

/// What a conversion makes of a checkpoint.
struct ConvertRequest {
  Spelling spelling = Spelling::kModule;
  Storage storage = {};
  uint64_t max_shard_bytes = 5'000'000'000;
  std::shared_ptr<const ValueEdit> edit = nullptr;  // of values on the way
};

/// What became of the tensors of one class that had one form.
struct ConvertedClass {
  TensorClass type = TensorClass::kExperts;
  std::string from, to;  // Form::text
  int64_t tensors = 0;   // of the model; packed experts are one
  RecodingLoss loss = {};
};

/// What the edit did to one tensor of the model.
struct EditedTensor {
  std::string name;
  TensorClass type = TensorClass::kExperts;
  std::string form;  // as written, Form::text
  EditCounts counts = {};
};

struct ConvertReport {
  std::vector<ConvertedClass> classes = {};  // in the order of TensorClass
  std::vector<EditedTensor> edited = {};     // in the order of the network
  std::vector<std::string> notes = {};       // what was detected and left aside
  std::vector<std::string> warnings = {};    // what other programs cannot do with the result
  uint64_t bytes = 0;                        // of the files of tensors
  uint64_t bytes_kept = 0;                   // of them, those that an earlier, interrupted run had written
  bool was_complete = false;                 // there was nothing left to do
};

/// The bytes of tensors that convert_checkpoint writes. InputError for what it refuses because of the source alone.
uint64_t converted_bytes(const std::filesystem::path& source, const ConvertRequest& request);

/// Writes the checkpoint `source` as `target`, another form of it, in bounded memory: a few chunks of 8 MB for each of
/// `workers` threads, whatever the size. `request.edit` changes the values of its tensors after they are decoded and
/// before they are encoded. Files come into being below <target>.incomplete, which no loader takes, and
/// the folder gets its name in one step at the end. A run that was killed is continued by the next one with the same
/// source and request: files it completed are kept. `target` holds config.json and the tokenizer's files as well, and
/// conversion.json: the request, what was lost, and size and checksum of every file of tensors.
/// InputError, before anything is written: what bind_checkpoint and target_tensors refuse; too little space on the
/// disk; a target that exists, or was begun with another source or request. RunError when reading or writing fails.
ConvertReport convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& target,
                                 const ConvertRequest& request, int workers);

/// Reads every file that conversion.json lists and compares size and checksum. VerificationError that lists the files
/// which do not agree; InputError when the folder has no conversion.json. Returns the bytes read.
uint64_t verify_conversion(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
