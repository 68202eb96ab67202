#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "asterism/cli/commands.h"
#include "asterism/core/file.h"
#include "asterism/core/rng.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::cli {

inline const std::string kSmallLora = "lora: {rank: 2, alpha: 4, targets: [attention, experts]}\n";

/// A folder with what a run needs: model/ (tiny, random), train.jsonl and eval.jsonl with token rows, and tokenizer/
/// whose ids are the bytes. The model gets the tokenizer when its vocabulary has room for it.
class TrainingFiles {
 public:
  explicit TrainingFiles(int64_t vocab_size = 97) {
    nlohmann::ordered_json config = testing::tiny_config_json();
    config["vocab_size"] = vocab_size;
    folder_.write("config.json", config.dump());
    std::filesystem::create_directory(folder_ / "tokenizer");
    folder_.write("tokenizer/tokenizer.json", data::small_tokenizer({}).dump());
    folder_.write("train.jsonl", rows(12, 1));
    folder_.write("eval.jsonl", rows(3, 2));
    InitArgs init{.config = folder_ / "config.json", .out = folder_ / "model", .seed = 1};
    if (vocab_size >= 256) init.tokenizer = folder_ / "tokenizer";
    run_init(init);
  }

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const testing::TemporaryFolder& folder() const { return folder_; }

  /// A recipe of three steps whose run folder is runs/run; `more` holds further sections.
  std::string recipe(const std::string& more) const {
    const std::string root = folder_.path();
    return folder_.write("recipe.yaml", "name: run\noutput: " + root + "/runs\nmodel: {path: " + root +
                                            "/model, compute: fp32}\ndata: {train: " + root +
                                            "/train.jsonl, eval: " + root +
                                            "/eval.jsonl, sequence_length: 16}\ntrain: {steps: 3, batch: 2}\n"
                                            "optimizer: {lr: 1.0e-2}\n" +
                                            more);
  }

  std::filesystem::path run(const std::string& name) const { return folder_ / ("runs/run/" + name); }
  nlohmann::json report() const { return nlohmann::json::parse(read_text(run("report.json"))); }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> all;
    std::istringstream lines(read_text(run("metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  /// Every file of the run folder with its content.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "runs")) {
      if (entry.is_regular_file()) all[entry.path()] = read_text(entry.path());
    }
    return all;
  }

 private:
  static std::string rows(int64_t count, uint64_t seed) {
    std::string lines;
    const RandomStream stream(seed, "rows");
    for (int64_t row = 0; row < count; ++row) {
      nlohmann::json ids = nlohmann::json::array();
      for (int64_t t = 0; t < 10; ++t) ids.push_back(stream.below(97, static_cast<uint64_t>(row * 10 + t)));
      lines += nlohmann::json{{"input_ids", ids}}.dump() + "\n";
    }
    return lines;
  }

  testing::TemporaryFolder folder_;
};

}  // namespace asterism::cli
