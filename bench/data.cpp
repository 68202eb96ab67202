// The data path, timed: the counterpart of data_baseline.py with the same work and the same keys in its JSON lines.
// Seconds are processor seconds of one thread, the median of the passes after a first one. For chat rows there is also
// an epoch with a worker thread per core, in seconds of the clock.
//
//   bench_data tokenizer TOKENIZER PASSES TEXT...       texts, cut into documents of 20,000 bytes -> token ids
//   bench_data rows TOKENIZER PASSES ROWS.jsonl LENGTH  chat rows -> read, rendered, tokenized, masked, packed: an
//   epoch
//                                                       in shuffled order, behind the preparation pass
//   bench_data load TOKENIZER PASSES                    tokenizer.json -> ready

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/memory.h"
#include "asterism/data/loader.h"
#include "asterism/data/step_reader.h"
#include "asterism/data/tokenizer.h"

namespace {

using namespace asterism;
using Json = nlohmann::ordered_json;

constexpr size_t kDocumentBytes = 20000;

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Work>
double median_seconds(int passes, Work&& work, double (*now)() = processor_seconds) {
  work();
  std::vector<double> seconds;
  for (int pass = 0; pass < passes; ++pass) {
    const double start = now();
    work();
    seconds.push_back(now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

double megabytes(size_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

// A sum of the ids weighted by their place modulo 2^32: equal ids in equal order, in both programs.
class Checksum {
 public:
  void add(const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) sum_ = static_cast<uint32_t>(sum_ * 31 + static_cast<uint32_t>(id));
  }
  uint32_t value() const { return sum_; }

 private:
  uint32_t sum_ = 0;
};

std::vector<std::string> documents(const std::string& text) {
  std::vector<std::string> cut;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.size(), begin + kDocumentBytes);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    cut.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return cut;
}

Json measure_tokenizer(const data::Tokenizer& tokenizer, const std::filesystem::path& path, int passes) {
  const std::string text = read_text(path);
  const std::vector<std::string> texts = documents(text);
  std::vector<std::vector<int64_t>> ids(texts.size());
  const double seconds = median_seconds(passes, [&] {
    for (size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer.encode(texts[i]);
  });
  size_t tokens = 0;
  Checksum checksum;
  for (const auto& document : ids) {
    tokens += document.size();
    checksum.add(document);
  }
  return {{"kind", "tokenizer"}, {"program", "asterism"},
          {"text", path.stem()}, {"mb", megabytes(text.size())},
          {"tokens", tokens},    {"checksum", checksum.value()},
          {"seconds", seconds},  {"mb_per_s", megabytes(text.size()) / seconds}};
}

data::RowOptions row_options(const std::shared_ptr<const data::Tokenizer>& tokenizer) {
  data::RowOptions options;
  options.vocab_size = tokenizer->vocab_size();
  options.tokenize = data::tokenize_with(tokenizer);
  return options;
}

Json measure_rows(std::shared_ptr<const data::Tokenizer> tokenizer, const std::string& path, int64_t length,
                  int passes) {
  data::PreparationOptions preparation;
  preparation.rows = row_options(tokenizer);
  preparation.fit.sequence_length = length;
  const double start = processor_seconds();
  data::PreparedData prepared = data::prepare_data({{path, 1.0}}, preparation, {});
  const double prepare_seconds = processor_seconds() - start;
  const data::DataSet set(std::move(prepared), preparation.rows, preparation.fit, {});
  const data::PreparationReport& report = set.report();
  const auto read_epoch = [&](int64_t workers) {
    data::StepReader reader(set, {.workers = workers}, {});
    for (int64_t row = 0; row < set.rows_per_epoch(0); ++row) reader.next();
  };
  const double seconds = median_seconds(passes, [&] { read_epoch(0); });
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const double shared_seconds = median_seconds(
      passes, [&] { read_epoch(cores); }, clock_seconds);
  const double size = megabytes(std::filesystem::file_size(path));
  return {{"kind", "chat_rows"},
          {"program", "asterism"},
          {"rows", report.rows},
          {"mb", size},
          {"tokens", report.tokens},
          {"trained_tokens", report.trained_tokens},
          {"fill_ratio", set.fill_ratio(0)},
          {"prepare_seconds", prepare_seconds},
          {"seconds", seconds},
          {"rows_per_s", static_cast<double>(report.rows) / seconds},
          {"mb_per_s", size / seconds},
          {"workers", cores},
          {"workers_clock_seconds", shared_seconds},
          {"workers_mb_per_s_per_core", size / shared_seconds / static_cast<double>(cores)},
          {"peak_rss_mb", megabytes(peak_resident_bytes())}};
}

Json measure_load(const std::string& path, int passes) {
  const double seconds = median_seconds(passes, [&] { data::Tokenizer::load(path); });
  return {{"kind", "tokenizer_load"}, {"program", "asterism"}, {"seconds", seconds}};
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 3) input_error("bench_data: expected tokenizer|rows|load TOKENIZER PASSES ..., see the source");
  const std::string& action = words[0];
  const int passes = std::stoi(words[2]);
  if (action == "load") {
    std::cout << measure_load(words[1], passes).dump() << "\n";
    return;
  }
  const auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::load(words[1]));
  if (action == "tokenizer") {
    for (size_t i = 3; i < words.size(); ++i) {
      std::cout << measure_tokenizer(*tokenizer, words[i], passes).dump() << "\n";
    }
  } else if (action == "rows" && words.size() == 5) {
    std::cout << measure_rows(tokenizer, words[3], std::stoll(words[4]), passes).dump() << "\n";
  } else {
    input_error("bench_data: unknown action ", action, " or wrong number of arguments");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << user_message(error) << "\n";
    return 1;
  }
  return 0;
}
