// What a rank reads and how much memory it takes while a shared model is loaded and saved.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "asterism/checkpoint/checkpoint_slices.h"
#include "asterism/core/memory.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/train/resume.h"
#include "asterism/train/shared_parameters.h"
#include "tests/support/process_counters.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::Form;

constexpr int kMemoryRanks = 4;
constexpr int64_t kMegabyte = 1 << 20;

/// One of several ranks that never meet: loading moves nothing between them.
class LonelyRank : public dist::Transport {
 public:
  explicit LonelyRank(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<dist::Work> all_gather(const at::Tensor&, const at::Tensor&, std::string_view what) override {
    run_error("this rank is alone: ", what);
  }
  std::unique_ptr<dist::Work> all_to_all(const at::Tensor&, const at::Tensor&, const std::vector<int64_t>&,
                                         const std::vector<int64_t>&, std::string_view what) override {
    run_error("this rank is alone: ", what);
  }
  std::unique_ptr<dist::Work> broadcast(const at::Tensor&, int, std::string_view what) override {
    run_error("this rank is alone: ", what);
  }
  std::shared_ptr<dist::Transport> subgroup(const std::vector<int>& members, const std::string&) override {
    const auto here = std::ranges::find(members, rank_);
    return std::make_shared<LonelyRank>(static_cast<int>(here - members.begin()), static_cast<int>(members.size()));
  }
  void abort(const std::string&) noexcept override {}

 private:
  int rank_, size_;
};

/// Runs `body` in a process of its own, with one thread of computation, and returns the numbers that it leaves.
std::map<std::string, int64_t> in_own_process(const std::function<std::map<std::string, int64_t>()>& body) {
  const testing::TemporaryFolder folder;
  const pid_t process = ::fork();
  if (process == 0) {
    int code = 1;
    try {
      at::set_num_threads(1);
      std::ofstream(folder / "numbers") << nlohmann::json(body()).dump();
      code = 0;
    } catch (const std::exception& error) {
      std::ofstream(folder / "error") << error.what();
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  std::string error;
  std::getline(std::ifstream(folder / "error"), error);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << " " << error;
  const auto numbers = nlohmann::json::parse(std::ifstream(folder / "numbers"), nullptr, /*allow_exceptions=*/false);
  return numbers.is_object() ? numbers.get<std::map<std::string, int64_t>>() : std::map<std::string, int64_t>();
}

/// Experts of 8 layers: 77 million numbers beside little else.
model::Config config_of_memory_test() {
  auto json = testing::tiny_config_json();
  const std::pair<const char*, int64_t> sizes[] = {{"hidden_size", 512},
                                                   {"moe_intermediate_size", 400},
                                                   {"n_routed_experts", 16},
                                                   {"num_hidden_layers", 8},
                                                   {"num_nextn_predict_layers", 0}};
  for (const auto& [key, value] : sizes) json[key] = value;
  json["compress_ratios"] = {0, 4, 128, 0, 0, 0, 0, 0};
  return model::parse_config(json, "memory");
}

struct LoadCase {
  const char* what;
  checkpoint::Spelling spelling;
  checkpoint::Storage stored;
  bool full;
};

const checkpoint::Storage kReleasedForms = {.experts = Form::fp8(), .dense = Form::fp8()};
const checkpoint::Storage kHalfForms = {.experts = Form::plain(at::kBFloat16), .dense = Form::plain(at::kBFloat16)};
const std::vector<LoadCase> kLoadCases = {
    {"full, bf16, module names", checkpoint::Spelling::kModule, kHalfForms, true},
    {"full, FP8, native names", checkpoint::Spelling::kNative, kReleasedForms, true},
    {"LoRA, FP8, native names", checkpoint::Spelling::kNative, kReleasedForms, false},
};

std::map<std::string, int64_t> load_alone(const fs::path& folder, const LoadCase& test, int rank) {
  const model::Config config = config_of_memory_test();
  checkpoint::CheckpointSlices slices(folder, config, {.packed = true});
  model::Model model{.config = config, .weights = slices.outlines()};
  if (!test.full) model::attach_lora(config, model.weights, {.rank = 2}, 1);
  auto parameters = test.full ? full_parameters(model, {}) : lora_parameters(model);
  const auto world = std::make_shared<dist::Comm>(std::make_shared<LonelyRank>(rank, kMemoryRanks), "world");
  const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(kMemoryRanks, {.expert = 2}));
  model::FreshLora fresh(config, 1);
  class Both : public model::SliceReader {
   public:
    Both(model::SliceReader& base, model::SliceReader& lora) : base_(base), lora_(lora) {}
    void read(const std::string& name, int64_t begin, const at::Tensor& out) override {
      (name.find(".lora_") == std::string::npos ? base_ : lora_).read(name, begin, out);
    }

   private:
    model::SliceReader &base_, &lora_;
  } values(slices, fresh);
  const int64_t memory = static_cast<int64_t>(resident_bytes()), read = testing::bytes_read_so_far();
  const SharedParameters shared = share_parameters(model, std::move(parameters), comms, false, &values);
  return {{"read", testing::bytes_read_so_far() - read},
          {"peak", static_cast<int64_t>(peak_resident_bytes()) - memory},
          {"share", shared.model->resident_bytes()},
          {"whole", shared.model->whole_bytes()}};
}

TEST(RankMemory, ARankReadsAndHoldsItsShareOnly) {
  if (testing::bytes_read_so_far() == 0 || peak_resident_bytes() == 0) GTEST_SKIP() << "the system does not count";
  const testing::TemporaryFolder folder;
  const model::Config config = config_of_memory_test();
  for (const LoadCase& test : kLoadCases) {
    SCOPED_TRACE(test.what);
    checkpoint::write_initial_checkpoint(folder / "model", config, 1,
                                         {.spelling = test.spelling, .storage = test.stored, .replace = true});
    const auto source = checkpoint::Source::open(folder / "model");
    int64_t stored = 0, read = 0, peak = 0;
    for (const std::string& name : source.names()) stored += static_cast<int64_t>(source.info(name).bytes);
    for (int rank = 0; rank < kMemoryRanks; ++rank) {
      auto numbers = in_own_process([&] { return load_alone(folder / "model", test, rank); });
      // The contract allows a tensor beside it; nothing needs one.
      EXPECT_LE(numbers["peak"], numbers["share"] + 64 * kMegabyte) << rank;
      EXPECT_LE(numbers["share"], numbers["whole"] / kMemoryRanks + kMegabyte) << rank;
      if (test.full) {
        EXPECT_GT(numbers["whole"], 300 * kMegabyte) << "large enough to tell";
      }
      read += numbers["read"];
      peak = std::max(peak, numbers["peak"] - numbers["share"]);
    }
    EXPECT_GE(read, stored);
    // Of FP8 that becomes plain, rows and blocks of rows are read that lie on two ranks; and what the system tells of
    // itself is counted as well.
    const int64_t edges = test.full && test.stored.is_coded() ? kMegabyte / 2 : 0;
    EXPECT_LE(read, stored + edges + kMemoryRanks * 20'000);
    RecordProperty(text("bytes beyond the files', ", test.what), std::to_string(read - stored));
    RecordProperty(text("peak beyond the share, ", test.what), std::to_string(peak));
  }
}

std::map<std::string, int64_t> save_by_two(const fs::path& file) {
  std::map<std::string, int64_t> numbers;
  dist::run_thread_ranks(2, [&](const std::shared_ptr<dist::Transport>& transport) {
    at::set_num_threads(1);
    const model::Config config = config_of_memory_test();
    model::Model model{.config = config, .weights = {}};
    model::for_each_tensor(config, model.weights, [](const model::TensorSpec& spec, at::Tensor& slot) {
      const bool table = spec.role == model::TensorRole::kTable;
      slot = model::outline(spec.shape, table ? at::kLong : at::kFloat);
    });
    class Ones : public model::SliceReader {
      void read(const std::string&, int64_t, const at::Tensor& out) override { at::Tensor(out).fill_(1); }
    } ones;
    const auto world = std::make_shared<dist::Comm>(transport, "world");
    const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(2, {.expert = 2}));
    const SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms, /*strict=*/false, &ones);
    AdamW optimizer(shared.parameters, {});
    for (AdamW::State& state : optimizer.states()) {
      state.exp_avg.fill_(2.0);
      state.exp_avg_sq.fill_(3.0);
    }
    // Once before it is measured: the first call maps code of libraries.
    write_shared_state(1, optimizer, {}, {}, *shared.model, file);
    world->barrier("all is in memory");
    // What was before must not count: the peak starts again here.
    if (world->rank() == 0) testing::restart_peak();
    const auto before = static_cast<int64_t>(resident_bytes());
    world->barrier("measured");
    write_shared_state(1, optimizer, {}, {}, *shared.model, file);
    world->barrier("saved");
    if (world->rank() == 0) {
      numbers["peak"] = static_cast<int64_t>(peak_resident_bytes()) - before;
      numbers["resident"] = before;
    }
  });
  return numbers;
}

TEST(RankMemory, SavingTakesAStretchWhateverTheSizeOfTheState) {
  if (peak_resident_bytes() == 0) GTEST_SKIP() << "the system does not count";
  const testing::TemporaryFolder folder;
  auto numbers = in_own_process([&] { return save_by_two(folder / "state.safetensors"); });
  const auto bytes = static_cast<int64_t>(fs::file_size(folder / "state.safetensors"));
  EXPECT_GT(bytes, 800 * kMegabyte);
  EXPECT_GT(numbers["resident"], bytes) << "both ranks are in this process";
  EXPECT_LT(numbers["peak"], 64 * kMegabyte);
  RecordProperty("peak while saving", std::to_string(numbers["peak"]));
}

}  // namespace
}  // namespace asterism::train
