#include "asterism/dist/environment.h"

#include <charconv>
#include <vector>

#include "asterism/core/error.h"

namespace asterism::dist {

namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kDefaultPort = 29500;  // torchrun's

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> find(const std::string& name) const {
    auto value = lookup_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }

  bool has(const std::string& name) const { return find(name).has_value(); }

  std::optional<int64_t> number(const std::string& name, int64_t low, int64_t high) const {
    const auto value = find(name);
    if (!value) return std::nullopt;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || number < low || number > high) {
      input_error(name, ": expected a whole number from ", low, " to ", high, " in the environment; found '", *value,
                  "'");
    }
    return number;
  }

  std::string first_of(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (const auto value = find(name)) return *value;
    }
    return "";
  }

 private:
  const Lookup& lookup_;
};

/// Names under which a launcher tells a process its number.
struct Names {
  const char* launcher;
  const char *rank, *size, *local_rank;
};

constexpr Names kPlain = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Names kOpenMpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Names kPmi = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"};

std::optional<Place> numbers(const Variables& variables, const Names& names) {
  const bool has_rank = variables.has(names.rank), has_size = variables.has(names.size);
  if (!has_rank && !has_size) return std::nullopt;
  if (has_rank != has_size) {
    const char* present = has_rank ? names.rank : names.size;
    const char* absent = has_rank ? names.size : names.rank;
    input_error(present, " is set in the environment but ", absent,
                " is not: a launcher sets both; set both, or neither for a run of one process");
  }
  Place place;
  place.launcher = names.launcher;
  place.size = static_cast<int>(*variables.number(names.size, 1, kMaxRanks));
  place.rank = static_cast<int>(*variables.number(names.rank, 0, kMaxRanks));
  if (place.rank >= place.size) {
    input_error(names.rank, "=", place.rank, " and ", names.size, "=", place.size,
                " in the environment: a rank must be smaller than the number of ranks");
  }
  if (const auto local = variables.number(names.local_rank, 0, kMaxRanks)) place.local_rank = static_cast<int>(*local);
  return place;
}

// Inside srun only: the script of a batch job has SLURM_PROCID and SLURM_NTASKS too, and is one process.
std::optional<Place> slurm_numbers(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_ID")) return std::nullopt;
  const bool of_step = variables.has("SLURM_STEP_NUM_TASKS");
  return numbers(variables,
                 {"Slurm", "SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID"});
}

void check_agreement(const Place& a, const Names& names, const std::optional<Place>& b, const char* b_names) {
  if (!b || (a.rank == b->rank && a.size == b->size)) return;
  input_error("two launchers disagree in the environment: ", names.rank, "=", a.rank, " and ", names.size, "=", a.size,
              ", but ", b_names, " say rank ", b->rank, " of ", b->size,
              "; unset the variables of the one that did not start this process");
}

// The same number on all ranks without a word between them: from what names the run.
uint16_t port_of_run(const std::string& run) {
  uint32_t hash = 2166136261U;
  for (const char c : run) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619U;
  return static_cast<uint16_t>(run.empty() ? kDefaultPort : 20000 + hash % 10000);
}

void find_meeting_point(Place& place, const Variables& variables, const std::string& known_host) {
  place.host = variables.find("MASTER_ADDR").value_or(known_host);
  if (place.host.empty()) {
    input_error("MASTER_ADDR is not set: ", place.launcher, " started ", place.size,
                " ranks, and they need the name or address of the machine of rank 0 to meet; set MASTER_ADDR and "
                "MASTER_PORT for all ranks (mpirun: -x MASTER_ADDR=... -x MASTER_PORT=...)");
  }
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  place.port = port ? static_cast<uint16_t>(*port) : port_of_run(place.run);
}

Place torchrun_place(Place place, const Variables& variables) {
  place.launcher = "torchrun";
  // The agent's store outlives a restart of the workers.
  place.run =
      text(*variables.find("TORCHELASTIC_RUN_ID"), ".", variables.find("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!variables.has(name)) input_error(name, " is not set in the environment, although torchrun sets it");
  }
  find_meeting_point(place, variables, "");
  const std::string agent_store = variables.find("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  place.store_is_hosted = agent_store == "True" || agent_store == "true" || agent_store == "1";
  return place;
}

Place mpi_place(Place place, const Variables& variables, const char* local_size_name) {
  place.run = variables.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto local_size = variables.number(local_size_name, 1, kMaxRanks);
  find_meeting_point(place, variables, local_size == place.size ? "127.0.0.1" : "");
  return place;
}

Place slurm_place(Place place, const Variables& variables) {
  place.run = text("slurm-", variables.first_of({"SLURM_JOB_ID", "SLURM_JOBID"}), ".",
                   variables.first_of({"SLURM_STEP_ID"}), ".", variables.first_of({"SLURM_RESTART_COUNT"}));
  const std::string nodes = variables.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  find_meeting_point(place, variables, first_host(nodes));
  return place;
}

Place choose_place(const Variables& variables) {
  const auto plain = numbers(variables, kPlain);
  if (variables.has(kLauncherVariable)) {
    if (!plain) input_error(kLauncherVariable, " is set in the environment without RANK and WORLD_SIZE; unset it");
    Place place = *plain;
    place.launcher = "--ranks";
    place.run = *variables.find(kLauncherVariable);
    find_meeting_point(place, variables, "");
    place.store_is_hosted = true;
    return place;
  }
  if (plain && variables.has("TORCHELASTIC_RUN_ID")) return torchrun_place(*plain, variables);
  const auto open_mpi = numbers(variables, kOpenMpi), pmi = numbers(variables, kPmi);
  const auto slurm = slurm_numbers(variables);
  if (plain) {
    check_agreement(*plain, kPlain, open_mpi, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE");
    check_agreement(*plain, kPlain, pmi, "PMI_RANK and PMI_SIZE");
    check_agreement(*plain, kPlain, slurm, "SLURM_PROCID and the number of tasks of the Slurm step");
    Place place = *plain;
    if (place.size > 1) find_meeting_point(place, variables, "");
    return place;
  }
  if (open_mpi) {
    check_agreement(*open_mpi, kOpenMpi, pmi, "PMI_RANK and PMI_SIZE");
    return open_mpi->size == 1 ? *open_mpi : mpi_place(*open_mpi, variables, "OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  // srun --mpi sets the variables of PMI as well; Slurm's also name the machine to meet at.
  if (slurm && (!pmi || (pmi->rank == slurm->rank && pmi->size == slurm->size))) {
    return slurm->size == 1 ? *slurm : slurm_place(*slurm, variables);
  }
  if (pmi) return pmi->size == 1 ? *pmi : mpi_place(*pmi, variables, "MPI_LOCALNRANKS");
  return {};
}

}  // namespace

Place find_place(const Lookup& lookup) {
  Place place = choose_place(Variables(lookup));
  // A launcher may start a single rank.
  if (place.size == 1) place.host.clear();
  return place;
}

std::string first_host(const std::string& node_list) {
  std::string host;
  bool inside = false, taken = false;  // inside brackets; their first number is complete
  for (const char c : node_list) {
    if (c == '[') {
      inside = true;
      taken = false;
    } else if (c == ']') {
      inside = false;
    } else if (inside) {
      taken = taken || c == '-' || c == ',';
      if (!taken) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

}  // namespace asterism::dist
