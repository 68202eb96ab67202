// Loads all weights of a checkpoint once and tells in a JSON line what that took.
//
//   bench_load FOLDER            as stored: FP8 and FP4 matrices stay packed
//   bench_load FOLDER bf16|fp32  matrices in one plain type
//
// read_bytes is what the system fetched from the disk for this process; 0 when the files were in memory already.
// peak_bytes is what loading added to the resident memory at most, weight_bytes the memory of the weights.

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/memory.h"

namespace {

using namespace asterism;

uint64_t fetched_bytes() {
  std::ifstream counters("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (counters >> key >> value) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

int measure(const std::filesystem::path& folder, const std::string& type) {
  const model::Config config = model::read_config(folder / "config.json");
  checkpoint::ReadOptions options{.packed = type.empty()};
  if (!type.empty()) options.matrix_dtype = type == "bf16" ? at::kBFloat16 : at::kFloat;
  uint64_t needed = 0;
  {
    const auto source = checkpoint::Source::open(folder);
    for (const std::string& name : source.names()) needed += source.info(name).bytes;
  }
  const uint64_t fetched = fetched_bytes(), resident = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto loaded = checkpoint::read_weights(folder, config, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  int64_t weights = 0;
  for (const auto& [storage, bytes] : model::bytes_by_storage(config, loaded.weights)) weights += bytes;
  const nlohmann::ordered_json line = {{"seconds", seconds},
                                       {"needed_bytes", needed},
                                       {"read_bytes", fetched_bytes() - fetched},
                                       {"weight_bytes", weights},
                                       {"peak_bytes", peak_resident_bytes() - resident}};
  std::cout << line.dump() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2 && argc != 3) input_error("expected FOLDER [bf16|fp32]");
    return measure(argv[1], argc == 3 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << "bench_load: " << user_message(error) << "\n";
    return 1;
  }
}
