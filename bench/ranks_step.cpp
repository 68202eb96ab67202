// Training steps of one rank or of several that share a model over gloo, timed: the same work, with the same keys in
// its JSON line, as fsdp2_baseline.py and twinkle_baseline.py. It starts the ranks itself, on this machine; rank 0
// prints. Weights are made slice by slice, so that a rank never holds more than its share of the model.
//
//   bench_ranks_step --config bench/configs/small.json --ranks 2 --threads 1 --expert 2

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>
#include <iostream>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/dist/gloo_transport.h"
#include "asterism/dist/launch.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/dist/world.h"
#include "asterism/model/initialize.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/tensor_memory.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/train/step.h"
#include "bench/step_setup.h"

extern char** environ;

namespace {

using namespace asterism;
using namespace asterism::bench;
using Json = nlohmann::ordered_json;

std::map<std::string, std::string> ranks_options() {
  std::map<std::string, std::string> options = step_options();
  options.erase("lora-targets");
  options.insert(
      {{"rows", "2"}, {"ranks", "1"}, {"expert", "1"}, {"shard", "0"}, {"replicate", "0"}, {"strict", "no"}});
  options["seq"] = "512";
  options["steps"] = "5";
  options["threads"] = "1";
  options["recompute"] = "blocks";
  return options;
}

/// What initialize_weights and attach_lora make, slice by slice.
class FreshWeights : public model::SliceReader {
 public:
  FreshWeights(const model::Config& config, uint64_t seed) : config_(config), seed_(seed), lora_(config, seed) {
    for (const model::TensorSpec& spec : model::tensor_specs(config)) specs_[spec.name] = spec;
  }

  void read(const std::string& name, int64_t begin, const at::Tensor& out) override {
    if (name.ends_with(model::kLoraAEnd) || name.ends_with(model::kLoraBEnd)) return lora_.read(name, begin, out);
    const model::TensorSpec& spec = specs_.at(name);
    if (spec.role == model::TensorRole::kTable) return read_table(spec, begin, out);
    const at::Tensor values = out.scalar_type() == at::kFloat ? out : at::empty({out.numel()}, at::kFloat);
    auto* first = values.mutable_data_ptr<float>();
    at::parallel_for(0, out.numel(), 4096, [&](int64_t from, int64_t to) {
      model::initial_values(config_, spec, seed_, begin + from, to - from, first + from);
    });
    if (!values.is_same(out)) out.copy_(values);
  }

 private:
  void read_table(const model::TensorSpec& spec, int64_t begin, const at::Tensor& out) {
    const int64_t columns = spec.shape[1];
    const int64_t first = begin / columns, last = (begin + out.numel() + columns - 1) / columns;
    const at::Tensor rows = at::empty({last - first, columns}, at::kLong);
    model::initial_table(config_, spec, seed_, first, last - first, rows.mutable_data_ptr<int64_t>());
    out.copy_(rows.view({-1}).narrow(0, begin - first * columns, out.numel()));
  }

  const model::Config& config_;
  uint64_t seed_;
  model::FreshLora lora_;
  std::map<std::string, model::TensorSpec> specs_;
};

/// Bytes of one unit of the model, or of all of a kind: what ranks gather, and the fp32 gradients they add up.
struct UnitBytes {
  int64_t trained = 0, frozen = 0;
};

std::string kind_of_unit(const std::string& name) {
  if (name.find(".mlp.experts.") != std::string::npos) return "experts";
  if (name.find(".layers.") != std::string::npos) return "halves";
  return name.find("embed") != std::string::npos ? "embedding" : "head";
}

Json unit_bytes(model::Model& model) {
  std::map<std::string, UnitBytes> units;
  model::for_each_named_slot(model.config, model.weights, [&](const std::string& name, at::Tensor& slot) {
    UnitBytes& unit = units[kind_of_unit(name)];
    (slot.requires_grad() ? unit.trained : unit.frozen) += static_cast<int64_t>(slot.nbytes());
  });
  Json bytes;
  for (const auto& [kind, unit] : units) bytes[kind] = {{"trained", unit.trained}, {"frozen", unit.frozen}};
  return bytes;
}

/// A model that is trained: on one rank as it is, unless strict; otherwise shared.
struct Training {
  model::Model model;
  std::vector<train::Parameter> parameters;  // this rank's
  std::shared_ptr<parallel::ShardedModel> shared;
  Json units;
  int64_t trained_elements = 0;

  dist::Comm* world() const { return shared ? shared->comms().world.get() : nullptr; }
};

Training prepare(const Options& options, const std::shared_ptr<dist::World>& ranks) {
  Training training;
  model::Model& model = training.model;
  model.config = model::read_config(options.text("config"));
  model.config.num_mtp_layers = 0;
  const auto seed = static_cast<uint64_t>(options.number("seed"));
  const bool strict = options.is("strict", "yes", "no"), alone = ranks->size() == 1 && !strict;
  const at::ScalarType storage = options.is("dtype", "bfloat16", "float32") ? at::kBFloat16 : at::kFloat;
  if (alone) {
    model.weights = model::initialize_weights(model.config, seed, storage);
  } else {
    model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
      const bool table = spec.role == model::TensorRole::kTable, matrix = spec.role == model::TensorRole::kMatrix;
      tensor = model::outline(spec.shape, table ? at::kLong : matrix ? storage : at::kFloat);
    });
  }
  if (options.is("mode", "full", "lora")) {
    training.parameters = train::full_parameters(model, {});
  } else {
    const auto lora = bench_lora(options, /*with_experts=*/true);
    model::attach_lora(model.config, model.weights, lora, seed);
    training.parameters = train::lora_parameters(model);
  }
  training.units = unit_bytes(model);
  training.trained_elements = train::count_elements(training.parameters);
  if (alone) return training;
  const auto transport = ranks->size() > 1 ? dist::make_gloo_transport(ranks) : dist::make_thread_transports(1).front();
  const auto mesh = parallel::make_mesh(
      ranks->size(), {static_cast<int>(options.number("expert")), static_cast<int>(options.number("shard")),
                      static_cast<int>(options.number("replicate"))});
  const auto comms = parallel::make_mesh_comms(std::make_shared<dist::Comm>(transport, "world"), mesh);
  FreshWeights values(model.config, seed);
  train::SharedParameters shared =
      train::share_parameters(model, std::move(training.parameters), comms, strict, &values);
  training.parameters = std::move(shared.parameters);
  training.shared = std::move(shared.model);
  return training;
}

/// What this rank's collectives did since the start, by "<group> <collective>"; and the bytes of rows that left with
/// gradients of results (rows for experts elsewhere) and of tokens (rows of others), each once a backward pass.
struct Sent {
  std::map<std::string, dist::Traffic> by_kind;
  int64_t bytes = 0, own_rows = 0, foreign_rows = 0;
  double wait_seconds = 0.0;
};

Sent sent_so_far(const Training& training) {
  Sent sent;
  if (!training.shared) return sent;
  const parallel::MeshComms& comms = training.shared->comms();
  for (const auto& comm : {comms.world, comms.shard, comms.replicate, comms.expert, comms.expert_shard}) {
    if (comm->size() == 1) continue;
    for (const auto& [name, traffic] : comm->traffic()) {
      if (name.starts_with("barrier")) continue;  // this program's own
      dist::Traffic& sum = sent.by_kind[comm->name() + " " + name.substr(0, name.find(' '))];
      sum.calls += traffic.calls;
      sum.bytes_sent += traffic.bytes_sent;
      sent.bytes += traffic.bytes_sent;
      sent.wait_seconds += traffic.wait_seconds;
      if (name.ends_with(": gradients of results")) sent.own_rows += traffic.bytes_sent;
      if (name.ends_with(": gradients of tokens")) sent.foreign_rows += traffic.bytes_sent;
    }
  }
  return sent;
}

/// Means over the counted steps.
Json sent_per_step(const Sent& before, const Sent& after, int64_t steps) {
  Json line;
  line["bytes_sent"] = (after.bytes - before.bytes) / steps;
  line["wait_s"] = (after.wait_seconds - before.wait_seconds) / static_cast<double>(steps);
  line["row_bytes"] = (after.own_rows + after.foreign_rows - before.own_rows - before.foreign_rows) / steps;
  line["traffic"] = Json::object();
  for (const auto& [kind, traffic] : after.by_kind) {
    const auto found = before.by_kind.find(kind);
    const dist::Traffic start = found == before.by_kind.end() ? dist::Traffic() : found->second;
    if (traffic.calls == start.calls) continue;
    line["traffic"][kind] = {{"calls", (traffic.calls - start.calls) / steps},
                             {"bytes_sent", (traffic.bytes_sent - start.bytes_sent) / steps}};
  }
  return line;
}

/// Micro-batches are rows, and go to the ranks in turn.
std::vector<data::PackedRow> rows_of_step(const Training& training, const Options& options, int64_t step, int rank,
                                          int ranks) {
  std::vector<data::PackedRow> rows;
  for (int64_t row = rank; row < options.number("rows"); row += ranks) {
    const auto seed = static_cast<uint64_t>(step * options.number("rows") + row);
    rows.push_back(random_row(training.model.config, options.number("seq"), seed));
  }
  return rows;
}

struct StepTimes {
  double whole = 0.0, forward = 0.0, backward = 0.0, update = 0.0;
  double loss = 0.0, norm = 0.0;
};

StepTimes run_one_step(const Training& training, train::AdamW& optimizer, const train::StepSettings& settings,
                       const std::vector<data::PackedRow>& rows) {
  parallel::ShardedModel* shared = training.shared.get();
  if (shared != nullptr) training.world()->barrier("start of a step");
  StepTimes times;
  const auto start = Clock::now();
  const train::StepResult result = train::run_step(training.model, rows, settings, shared);
  if (shared != nullptr) train::take_gradients(training.parameters, *shared);
  const auto update_start = Clock::now();
  times.norm =
      (shared != nullptr ? train::inspect_gradients(*shared) : train::inspect_gradients(training.parameters)).norm;
  optimizer.step(1e-4, train::clip_factor(times.norm, 1.0));
  if (shared != nullptr) shared->drop_gradients();
  times.update = seconds_since(update_start);
  times.whole = seconds_since(start);
  times.forward = result.forward_seconds;
  times.backward = result.backward_seconds;
  times.loss = result.loss;
  return times;
}

Json describe(const Options& options, const Training& training, int world) {
  const bool full = options.text("mode") == "full";
  Json line;
  line["kind"] = "ranks_step";
  line["program"] = "asterism";
  line["config"] = config_name(options);
  line["mode"] = options.text("mode");
  line["dtype"] = options.text("dtype");
  line["seq"] = options.number("seq");
  line["batch"] = options.number("rows");
  line["steps"] = options.number("steps");
  line["warmup"] = options.number("warmup");
  line["world"] = world;
  line["threads"] = at::get_num_threads();
  const parallel::Mesh mesh = training.shared ? training.shared->comms().mesh : parallel::Mesh();
  line["expert"] = mesh.expert;
  line["shard"] = mesh.shard;
  line["replicate"] = mesh.replicate;
  line["strategy"] = world == 1 ? "one rank" : mesh.expert > 1 ? "expert parallel" : "gather experts";
  line["strict"] = options.text("strict") == "yes";
  line["recompute"] = options.text("recompute");
  line["grad_checkpointing"] = options.text("recompute") != "none";
  if (!full) line["lora_rank"] = options.number("lora-rank");
  line["torch"] = TORCH_VERSION;
  line["optimizer"] = "adamw";
  line["params_trainable"] = training.trained_elements;
  line["units"] = training.units;
  return line;
}

/// What the transport does without anything else to do: bytes that a rank sends per second while all gather parts of
/// `bytes`; the best of several.
double all_gather_rate(dist::Comm& world, int64_t bytes) {
  const at::Tensor part = at::zeros({bytes}, at::kByte), all = at::empty({world.size() * bytes}, at::kByte);
  double best = 0.0;
  for (int i = 0; i < 8; ++i) {
    world.barrier("start of a gather");
    const auto start = Clock::now();
    world.all_gather(all, part, "rate of the transport");
    best = std::max(best, static_cast<double>(bytes * (world.size() - 1)) / seconds_since(start));
  }
  return best;
}

/// One text per rank, in their order.
std::vector<Json> of_all_ranks(const Training& training, const Json& own) {
  if (!training.shared) return {own};
  std::vector<Json> all;
  for (const std::string& text : training.world()->all_gather_text(own.dump(), "results")) {
    all.push_back(Json::parse(text));
  }
  return all;
}

void add_ranks(Json& line, const std::vector<Json>& ranks) {
  std::vector<double> whole;
  for (size_t step = 0; step < ranks[0]["whole"].size(); ++step) {
    double slowest = 0.0;
    for (const Json& rank : ranks) slowest = std::max(slowest, rank["whole"][step].get<double>());
    whole.push_back(slowest);
  }
  line["tokens_per_s"] = line["seq"].get<double>() * line["batch"].get<double>() / median(whole);
  line["step_s"] = median(whole);
  for (const char* phase : {"fwd_s", "bwd_s", "opt_s"}) line[phase] = ranks[0][phase];
  line["step_s_all"] = whole;
  for (const char* key : {"loss_first", "loss_last", "grad_norm_last", "traffic", "all_gather_bytes_per_s"})
    line[key] = ranks[0][key];
  double peak = 0.0;
  for (const Json& rank : ranks) {
    peak = std::max(peak, rank["peak_rss_mb"].get<double>());
    line["peak_rss_mb_ranks"].push_back(rank["peak_rss_mb"]);
    for (const char* key : {"bytes_sent", "row_bytes", "wait_s"}) line[key].push_back(rank[key]);
  }
  line["peak_rss_mb"] = peak;
}

void measure(const Options& options, const std::shared_ptr<dist::World>& ranks) {
  const Training training = prepare(options, ranks);
  train::AdamW optimizer(training.parameters, {});
  train::StepSettings settings;
  settings.forward.compute = options.text("dtype") == "bfloat16" ? at::kBFloat16 : at::kFloat;
  settings.loss.recompute = recompute_of(options);
  settings.sequence_length = options.number("seq");
  const int64_t warmup = options.number("warmup"), steps = options.number("steps");
  std::vector<StepTimes> times;
  Sent before;
  for (int64_t step = 0; step < warmup + steps; ++step) {
    if (step == warmup) before = sent_so_far(training);
    times.push_back(run_one_step(training, optimizer, settings,
                                 rows_of_step(training, options, step, ranks->rank(), ranks->size())));
    if (ranks->rank() > 0) continue;
    std::fprintf(stderr, "step %lld: loss %.4f norm %.4f fwd %.3f bwd %.3f opt %.3f s, peak %.0f MB\n",
                 static_cast<long long>(step), times.back().loss, times.back().norm, times.back().forward,
                 times.back().backward, times.back().update, megabytes(peak_resident_bytes()));
  }
  Json own = sent_per_step(before, sent_so_far(training), steps);
  own["loss_first"] = times.front().loss;
  own["loss_last"] = times.back().loss;
  own["grad_norm_last"] = times.back().norm;
  own["peak_rss_mb"] = megabytes(peak_resident_bytes());
  constexpr int64_t kProbeBytes = 8 << 20;  // about a layer's weights
  own["all_gather_bytes_per_s"] = ranks->size() > 1 ? all_gather_rate(*training.world(), kProbeBytes) : 0.0;
  times.erase(times.begin(), times.begin() + warmup);
  const auto column = [&](double StepTimes::*value) {
    std::vector<double> values;
    for (const StepTimes& step : times) values.push_back(step.*value);
    return values;
  };
  own["whole"] = column(&StepTimes::whole);
  own["fwd_s"] = median(column(&StepTimes::forward));
  own["bwd_s"] = median(column(&StepTimes::backward));
  own["opt_s"] = median(column(&StepTimes::update));
  const std::vector<Json> all = of_all_ranks(training, own);
  if (ranks->rank() > 0) return;
  Json line = describe(options, training, ranks->size());
  line["matmul"] = ops::matmul_provider(settings.forward.compute);
  add_ranks(line, all);
  std::cout << line.dump() << std::endl;
}

int launch_ranks(const Options& options, int argc, char** argv) {
  dist::LaunchOptions launch;
  launch.ranks = static_cast<int>(options.number("ranks"));
  launch.arguments.assign(argv, argv + argc);
  for (char** entry = environ; *entry != nullptr; ++entry) launch.environment.emplace_back(*entry);
  return dist::launch(launch);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options("bench_ranks_step", ranks_options(), argc, argv);
    if (options.text("config").empty()) input_error("bench_ranks_step: --config FILE is missing");
    if (options.number("steps") < 1) input_error("bench_ranks_step: --steps must be at least 1");
    const dist::Place place = dist::find_place([](const std::string& name) {
      const char* value = std::getenv(name.c_str());
      return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    });
    if (options.number("ranks") > 1 && place.launcher.empty()) return launch_ranks(options, argc, argv);
    keep_freed_memory();
    ops::pool_tensor_memory();
    at::set_num_threads(static_cast<int>(options.number("threads")));
    const auto world = std::make_shared<dist::World>(place);
    world->run([&] { measure(options, world); });
    world->leave();
  } catch (const std::exception& error) {
    std::cerr << "error: " << user_message(error) << "\n";
    return 1;
  }
  return 0;
}
