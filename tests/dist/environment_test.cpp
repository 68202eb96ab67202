#include "asterism/dist/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::error_of;

Place place_of(const Variables& variables) {
  return find_place([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::string refusal(const Variables& variables) {
  return error_of<InputError>([&] { place_of(variables); });
}

void expect_named(const std::string& message, const std::vector<std::string>& names) {
  for (const std::string& name : names) EXPECT_NE(message.find(name), std::string::npos) << name << " in: " << message;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29400"},
                             {"TORCHELASTIC_RUN_ID", "job"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Variables kSlurm = {{"SLURM_PROCID", "3"},         {"SLURM_NTASKS", "16"},
                          {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "1"},
                          {"SLURM_LOCALID", "1"},        {"SLURM_JOB_ID", "77"},
                          {"SLURM_JOB_NODELIST", "n1"},  {"SLURM_STEP_NODELIST", "rack[2-3]n[07,09-11],x1"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "prterun-1"}};

TEST(Environment, IsOneProcessWithoutALauncher) {
  const Place place = place_of({{"HOME", "somewhere"}, {"MASTER_ADDR", "node1"}});
  EXPECT_EQ(place.size, 1);
  EXPECT_EQ(place.rank, 0);
  EXPECT_TRUE(place.host.empty());
}

TEST(Environment, ReadsTorchrun) {
  const Place place = place_of(kTorchrun);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.host, "node1");
  EXPECT_EQ(place.port, 29400);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_TRUE(place.store_is_hosted);
  EXPECT_NE(place.run, place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).run);
  EXPECT_FALSE(place_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_is_hosted);
}

TEST(Environment, ReadsSlurmInsideAStep) {
  const Place place = place_of(kSlurm);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.host, "rack2n07");
  EXPECT_EQ(place.port, place_of(with(kSlurm, {{"SLURM_PROCID", "0"}})).port);
  EXPECT_NE(place.port, place_of(with(kSlurm, {{"SLURM_JOB_ID", "78"}})).port);
  EXPECT_FALSE(place.store_is_hosted);
  const Place told = place_of(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(told.host, "10.0.0.1");
  EXPECT_EQ(told.port, 4000);
}

TEST(Environment, IsOneProcessInTheScriptOfASlurmJob) {
  EXPECT_EQ(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "77"}}).size, 1);
}

TEST(Environment, FallsBackToTheTasksOfTheJob) {
  Variables variables = kSlurm;
  variables.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(place_of(variables).size, 16);
}

TEST(Environment, ReadsOpenMpiOnOneMachine) {
  const Place place = place_of(kOpenMpi);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.host, "127.0.0.1");
  EXPECT_EQ(place.port, place_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).port);
}

TEST(Environment, ReadsPmi) {
  const Place place = place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "5"}});
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.port, 5);
}

TEST(Environment, WantsAnAddressFromMpiOnSeveralMachines) {
  expect_named(refusal(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})), {"MASTER_ADDR", "mpirun"});
  expect_named(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), {"MASTER_ADDR"});
}

TEST(Environment, TakesTheInnermostLauncher) {
  // srun starts torchrun on each node; mpirun starts its daemons by srun; --ranks inside an srun of one task.
  EXPECT_EQ(place_of(with(kSlurm, kTorchrun)).launcher, "torchrun");
  EXPECT_EQ(place_of(with(kSlurm, kOpenMpi)).rank, 2);
  const Place ranks = place_of(with(kSlurm, {{kLauncherVariable, "17-40000"},
                                             {"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", "40000"}}));
  EXPECT_EQ(ranks.launcher, "--ranks");
  EXPECT_EQ(ranks.rank, 1);
  EXPECT_TRUE(ranks.store_is_hosted);
  // srun --mpi tells the same twice.
  EXPECT_EQ(place_of(with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}})).launcher, "Slurm");
}

TEST(Environment, RefusesHalfASetting) {
  expect_named(refusal({{"RANK", "0"}}), {"RANK", "WORLD_SIZE"});
  expect_named(refusal({{"WORLD_SIZE", "2"}}), {"RANK", "WORLD_SIZE"});
  expect_named(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}), {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  Variables variables = kTorchrun;
  variables.erase("MASTER_PORT");
  expect_named(refusal(variables), {"MASTER_PORT", "torchrun"});
}

TEST(Environment, RefusesNumbersOutOfRange) {
  expect_named(refusal(with(kTorchrun, {{"RANK", "8"}})), {"RANK=8", "WORLD_SIZE=8"});
  expect_named(refusal(with(kTorchrun, {{"RANK", "-1"}})), {"RANK", "-1"});
  expect_named(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), {"WORLD_SIZE", "'0'"});
  expect_named(refusal(with(kTorchrun, {{"WORLD_SIZE", "8x"}})), {"WORLD_SIZE", "8x"});
  expect_named(refusal(with(kTorchrun, {{"MASTER_PORT", "70000"}})), {"MASTER_PORT", "65535", "70000"});
  expect_named(refusal(with(kTorchrun, {{"MASTER_PORT", "http"}})), {"MASTER_PORT", "http"});
  expect_named(refusal(with(kSlurm, {{"SLURM_PROCID", "4"}})), {"SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=4"});
}

TEST(Environment, RefusesLaunchersThatDisagree) {
  // RANK written once into the script of a Slurm job: 0 for every task.
  expect_named(refusal(with(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n"}})),
               {"RANK=0", "SLURM_PROCID"});
  expect_named(refusal(with(kOpenMpi, {{"RANK", "2"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n"}})),
               {"WORLD_SIZE=8", "OMPI_COMM_WORLD_SIZE"});
  expect_named(refusal(with(kOpenMpi, {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}})), {"OMPI_COMM_WORLD_RANK=2", "PMI_RANK"});
}

TEST(Environment, FindsTheFirstMachineOfANodeList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[003-007,9]"), "node003");
  EXPECT_EQ(first_host("node[5,9]-ib,other"), "node5-ib");
  EXPECT_EQ(first_host("rack[2-3]n[07,09],x1"), "rack2n07");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace asterism::dist
