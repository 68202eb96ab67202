#include "asterism/checkpoint/convert.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/conversion_record.h"
#include "asterism/checkpoint/problem_list.h"
#include "asterism/checkpoint/shard_writer.h"
#include "asterism/checkpoint/stored_bytes.h"
#include "asterism/core/crc32c.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/positioned_file.h"
#include "asterism/core/progress.h"
#include "asterism/core/shortened.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorSpec;
using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t kMegabyte = 1'000'000;
constexpr std::array<const char*, 6> kCompanions = {"tokenizer.json",          "tokenizer_config.json",
                                                    "special_tokens_map.json", "generation_config.json",
                                                    "chat_template.jinja",     "LICENSE"};

/// Losses by class and forms.
using LossKey = std::tuple<TensorClass, std::string, std::string>;
using LossTable = std::map<LossKey, RecodingLoss>;

Json to_json(const LossTable& table) {
  Json list = Json::array();
  for (const auto& [key, loss] : table) {
    const auto& [type, from, to] = key;
    list.push_back({{"class", static_cast<int>(type)},
                    {"from", from},
                    {"to", to},
                    {"values", loss.values},
                    {"changed", loss.changed},
                    {"vanished", loss.vanished},
                    {"largest_relative", loss.largest_relative}});
  }
  return list;
}

void add_json(const Json& list, LossTable& table) {
  for (const Json& entry : list) {
    const LossKey key{static_cast<TensorClass>(entry.at("class").get<int>()), entry.at("from"), entry.at("to")};
    table[key] += {entry.at("values"), entry.at("changed"), entry.at("vanished"), entry.at("largest_relative")};
  }
}

using EditTable = std::map<std::string, EditCounts>;  // by tensor of the model

Json to_json(const EditTable& table) {
  Json list = Json::array();
  for (const auto& [name, counts] : table) {
    list.push_back({{"tensor", name},
                    {"adapted", counts.adapted},
                    {"changed", counts.changed},
                    {"along", counts.along},
                    {"squared", counts.squared}});
  }
  return list;
}

void add_json(const Json& list, EditTable& table) {
  for (const Json& entry : list) {
    table[entry.at("tensor")] += {entry.at("adapted"), entry.at("changed"), entry.at("along"), entry.at("squared")};
  }
}

/// What tells this source from another one, or from itself after a change.
std::string source_mark(const Source& source, const std::string& config) {
  uint32_t mark = crc32c(config.data(), config.size());
  for (const std::string& name : source.names()) {
    const TensorInfo& info = source.info(name);
    const fs::path& file = source.file_of(name);
    const std::string line = text(name, at::IntArrayRef(info.shape), static_cast<int>(info.dtype), info.offset,
                                  file.filename().string(), fs::last_write_time(file).time_since_epoch().count());
    mark = crc32c(line.data(), line.size(), mark);
  }
  return text(std::hex, mark);
}

const char* layout_word(Spelling spelling) {
  if (spelling == Spelling::kNative) return "native";
  return spelling == Spelling::kModule ? "hf" : "saved";
}

std::string form_word(const std::optional<Form>& form) {
  return form ? form->text() : "as stored";
}

class Conversion {
 public:
  Conversion(const fs::path& source, const ConvertRequest& request)
      : config_(model::read_config(source / "config.json")),
        bound_(bind_checkpoint(source, config_, /*equal_experts=*/true)),
        bytes_(bound_.source),
        request_(request),
        specs_(model::tensor_specs(config_)) {
    ProblemList problems;
    targets_ = target_tensors(specs_, request.spelling, [&](size_t spec) {
      const Form& now = bound_.tensors[spec].first().form;
      const Form wanted = target_form(specs_[spec], now, request.storage);
      if ((!(wanted == now) || edits(specs_[spec])) && now.dtype == at::kDouble) {
        problems.add("tensors of type F64, which can only be copied", specs_[spec].name);
      }
      return wanted;
    });
    problems.throw_if_any(source.string(), "convert them to F32 first");
    plan_ = plan_shards(targets_, request.max_shard_bytes);
  }

  uint64_t bytes() const { return plan_.bytes(); }

  Json request() const {
    Json request = {{"source", fs::absolute(bound_.source.folder()).lexically_normal().string()},
                    {"source_mark", source_mark(bound_.source, config_.raw.dump())},
                    {"layout", layout_word(request_.spelling)},
                    {"experts", form_word(request_.storage.experts)},
                    {"dense", form_word(request_.storage.dense)},
                    {"shard_bytes", request_.max_shard_bytes}};
    if (request_.edit) request["edit"] = request_.edit->mark();
    return request;
  }

  ConvertReport run(const fs::path& target, int workers) {
    ConversionRecord record(target, request());
    ConvertReport report{.notes = bound_.notes, .bytes = plan_.bytes(), .was_complete = record.is_complete()};
    ShardWriterOptions options{.workers = workers};
    for (const auto& [name, file] : record.files()) {
      options.skip.insert(name);
      report.bytes_kept += file.bytes;
    }
    if (!record.is_complete()) {
      write(record, options, workers);
      write_companions(record.folder());
      record.publish();
    }
    EditTable edits;
    try {
      for (const auto& [name, file] : record.files()) {
        add_json(file.loss, losses_);
        add_json(file.edits, edits);
      }
    } catch (const nlohmann::json::exception& error) {
      input_error(target.string(), ": the record of the conversion is damaged (", shortened(error.what()),
                  "); remove the folder and convert again");
    }
    report.classes = classes();
    report.edited = edited(edits);
    report.warnings = config_warnings(config_, request_.spelling);
    return report;
  }

 private:
  void write(ConversionRecord& record, ShardWriterOptions& options, int workers) {
    check_space(record);
    uint64_t kept = 0;
    for (const auto& [name, file] : record.files()) kept += file.bytes;
    if (kept > 0) {
      log_info("continuing a ", request_.edit ? "merge" : "conversion", ": ", record.files().size(), " of ",
               plan_.files.size(), " files (", kept / kMegabyte, " MB) are complete");
    }
    workers_.resize(workers);
    file_losses_.resize(plan_.files.size());
    file_edits_.resize(plan_.files.size());
    Progress progress({.label = request_.edit ? "merge" : "convert",
                       .unit = "MB",
                       .total = static_cast<int64_t>(plan_.bytes() / kMegabyte),
                       .first = static_cast<int64_t>(kept / kMegabyte)});
    options.on_progress = [&](uint64_t bytes) { progress.update(static_cast<int64_t>(bytes / kMegabyte)); };
    options.on_file = [&](const PlannedFile& file, uint32_t checksum) {
      const auto number = static_cast<size_t>(&file - plan_.files.data());
      const EditTable& edits = file_edits_[number];
      record.add(file.name,
                 {file.bytes, checksum, to_json(file_losses_[number]), edits.empty() ? Json() : to_json(edits)});
    };
    const FillChunk fill = [&](const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale,
                               int worker) { fill_chunk(target, chunk, data, scale, workers_[worker]); };
    write_planned(record.folder(), targets_, plan_, fill, options);
    progress.finish();
  }

  /// What one thread keeps from chunk to chunk.
  struct Worker {
    Recoder recoder;
    EditingRecoder editing;
    std::vector<std::byte> data, scale;
  };

  bool edits(const TensorSpec& spec) const { return request_.edit && request_.edit->edits(spec.name); }

  void fill_chunk(const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, Worker& worker) {
    const StoredPlace place = locate(bytes_, bound_.tensors[target.spec], target, chunk);
    const TensorSpec& spec = specs_[target.spec];
    try {
      RecodingLoss loss{.values = chunk.rows * chunk.columns};
      EditCounts counts;
      if (edits(spec)) {
        loss = fill_edited(place, target, chunk, data, scale, worker, counts);
      } else if (place.form == target.form) {
        place.read(chunk, data, scale);  // straight to where it is written from
      } else {
        place.read(chunk, worker.data, worker.scale);
        const MatrixBytes in{worker.data.data(), place.form.is_coded() ? worker.scale.data() : nullptr};
        loss = worker.recoder.recode(place.form, in, target.form, data, scale, chunk.rows, chunk.columns);
      }
      const LossKey key{tensor_class(spec), place.form.text(), target.form.text()};
      const size_t file = plan_.placements[chunk.target].file;
      const std::lock_guard lock(mutex_);
      file_losses_[file][key] += loss;
      if (edits(spec)) file_edits_[file][spec.name] += counts;
    } catch (const RunError& error) {
      run_error(place.file.string(), ": tensor '", place.name, "' ", error.what());
    }
  }

  RecodingLoss fill_edited(const StoredPlace& place, const TargetTensor& target, const Chunk& chunk, std::byte* data,
                           std::byte* scale, Worker& worker, EditCounts& counts) const {
    const TensorSpec& spec = specs_[target.spec];
    const EditedRows rows{spec, first_value(spec, target, chunk), chunk.rows, chunk.columns};
    place.read(chunk, worker.data, worker.scale);
    if (spec.role == model::TensorRole::kTable) {
      return worker.editing.recode_entries(*request_.edit, rows, place.form, worker.data.data(), target.form, data,
                                           counts);
    }
    const MatrixBytes in{worker.data.data(), place.form.is_coded() ? worker.scale.data() : nullptr};
    return worker.editing.recode(*request_.edit, rows, place.form, in, target.form, data, scale, counts);
  }

  void check_space(const ConversionRecord& record) const {
    uint64_t needed = plan_.bytes();
    for (const auto& [name, file] : record.files()) needed -= std::min(needed, file.bytes);
    for (const PlannedFile& file : plan_.files) {  // of the killed run, to be replaced
      std::error_code none;
      const uint64_t begun = fs::file_size(record.folder() / (file.name + ".part"), none);
      if (!none) needed -= std::min(needed, begun);
    }
    check_free_space(record.folder(), needed);
  }

  void write_companions(const fs::path& folder) const {
    write_text_atomically(folder / "config.json", config_text(config_, specs_, targets_, request_.spelling));
    if (!plan_.index.empty()) write_text_atomically(folder / "model.safetensors.index.json", plan_.index);
    for (const char* name : kCompanions) {
      const fs::path from = bound_.source.folder() / name;
      if (!fs::is_regular_file(from)) continue;
      std::error_code failure;
      fs::copy_file(from, folder / name, fs::copy_options::overwrite_existing, failure);
      if (failure) run_error((folder / name).string(), ": cannot copy ", from.string(), ": ", failure.message());
      sync_path(folder / name);
    }
  }

  std::vector<ConvertedClass> classes() const {
    std::map<LossKey, int64_t> tensors;
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Form& now = bound_.tensors[i].first().form;
      ++tensors[{tensor_class(specs_[i]), now.text(), target_form(specs_[i], now, request_.storage).text()}];
    }
    std::vector<ConvertedClass> result;
    for (const auto& [key, loss] : losses_) {
      result.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), tensors[key], loss});
    }
    return result;
  }

  std::vector<EditedTensor> edited(const EditTable& table) const {
    std::vector<EditedTensor> result;
    for (size_t i = 0; i < specs_.size(); ++i) {
      const auto found = table.find(specs_[i].name);
      if (found == table.end()) continue;
      const Form form = target_form(specs_[i], bound_.tensors[i].first().form, request_.storage);
      result.push_back({specs_[i].name, tensor_class(specs_[i]), form.text(), found->second});
    }
    return result;
  }

  const model::Config config_;
  const BoundCheckpoint bound_;
  const StoredBytes bytes_;
  const ConvertRequest request_;
  const std::vector<TensorSpec> specs_;
  std::vector<TargetTensor> targets_;
  ShardPlan plan_;
  std::vector<Worker> workers_;
  std::mutex mutex_;
  std::vector<LossTable> file_losses_;
  std::vector<EditTable> file_edits_;
  LossTable losses_;
};

}  // namespace

ConvertReport convert_checkpoint(const fs::path& source, const fs::path& target, const ConvertRequest& request,
                                 int workers) {
  return Conversion(source, request).run(target, workers);
}

uint64_t converted_bytes(const fs::path& source, const ConvertRequest& request) {
  return Conversion(source, request).bytes();
}

uint64_t verify_conversion(const fs::path& folder) {
  const auto files = converted_files(folder);
  uint64_t total = 0, done = 0;
  for (const auto& [name, file] : files) total += file.bytes;
  Progress progress({.label = "verify", .unit = "MB", .total = static_cast<int64_t>(total / kMegabyte)});
  std::vector<std::byte> buffer(8 * kMegabyte);
  std::string wrong;
  for (const auto& [name, file] : files) {
    const PositionedReader reader(folder / name);
    uint32_t checksum = 0;
    for (uint64_t at = 0; at < reader.size(); at += buffer.size()) {
      const size_t bytes = std::min<uint64_t>(buffer.size(), reader.size() - at);
      reader.read(buffer.data(), bytes, at);
      checksum = crc32c(buffer.data(), bytes, checksum);
      done += bytes;
      progress.update(static_cast<int64_t>(done / kMegabyte));
    }
    if (reader.size() == file.bytes && checksum == file.checksum) continue;
    wrong += text("\n  ", name, ": expected ", file.bytes, " bytes with CRC-32C ", std::hex, file.checksum, std::dec,
                  ", found ", reader.size(), " bytes with ", std::hex, checksum);
  }
  progress.finish();
  if (!wrong.empty()) {
    throw VerificationError(folder.string() + ": files differ from what was written:" + wrong +
                            "\n  the disk or a copy is damaged; convert again");
  }
  return done;
}

}  // namespace asterism::checkpoint
