// Two machines: network namespaces with a name and an address each and a cable between them, where this process may
// make such, and everywhere two nodes of torchrun.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/dist/rank_runs.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::announced;
using testing::Program;
using testing::ProgramResult;
using testing::RankRun;

constexpr const char* kAddressOfFirst = "10.213.77.1";

bool run_quietly(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

class TwoMachines : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto made = [&] {
      for (const int machine : {0, 1}) {
        if (!run_quietly("ip netns add " + space(machine))) return false;
      }
      return run_quietly(text("ip link add ", cable(0), " type veth peer name ", cable(1))) && connect(0) && connect(1);
    };
    if (!made()) GTEST_SKIP() << "this user may not make network namespaces (ip netns, as root)";
  }
  void TearDown() override {
    for (const int machine : {0, 1}) run_quietly("ip netns del " + space(machine));
  }

  static std::string space(int machine) { return text("asterism-", ::getpid(), "-", machine); }
  static std::string cable(int machine) { return text("as", ::getpid() % 1000000, "m", machine); }

  static bool connect(int machine) {
    const std::string in_space = text("ip -n ", space(machine), " ");
    return run_quietly(text("ip link set ", cable(machine), " netns ", space(machine), " && ", in_space,
                            "addr add 10.213.77.", machine + 1, "/24 dev ", cable(machine), " && ", in_space,
                            "link set ", cable(machine), " up && ", in_space, "link set lo up"));
  }

  /// Runs `command` on a machine, whose name is machine-0 or machine-1.
  Program& start(int machine, const std::string& command) {
    const std::string named = text("echo machine-", machine, " > /proc/sys/kernel/hostname && ", command);
    return run_.start_program(
        fs::relative("/bin/sh", ASTERISM_BINARY_DIR),
        {"-c", text("exec ip netns exec ", space(machine), " unshare --uts sh -c '", named, "'")});
  }

  /// Rank `rank` of four, two a machine, by the variables that torchrun sets where its own store is not used.
  Program& start_rank(int rank, const std::string& command) {
    return start(rank / 2, text("RANK=", rank, " LOCAL_RANK=", rank % 2, " GROUP_RANK=", rank / 2,
                                " WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=", kAddressOfFirst,
                                " MASTER_PORT=29517 exec ", ASTERISM_BINARY_DIR, "/", command));
  }

  std::vector<Program*> start_ranks(const std::string& command) {
    std::vector<Program*> ranks;
    for (int rank = 0; rank < 4; ++rank) ranks.push_back(&start_rank(rank, command));
    return ranks;
  }

  RankRun run_{{"TEST_TIMEOUT=3000", "TEST_EXIT_GRACE=1000", "OMP_NUM_THREADS=1"}};
};

TEST_F(TwoMachines, RanksKnowTheirMachineAndMoveBytes) {
  const auto places = start_ranks("rank_program place");
  for (int rank = 0; rank < 4; ++rank) {
    const ProgramResult ended = places[rank]->result();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.out, text("rank ", rank, " of 4, local ", rank % 2, " of 2\n"));
  }
  for (Program* rank : start_ranks("rank_program movements")) {
    const ProgramResult ended = rank->result();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
}

TEST_F(TwoMachines, ALostCableEndsBothSides) {
  const testing::TemporaryFolder folder;
  const auto ranks = start_ranks("rank_program loop " + folder.path().string());
  for (int rank = 0; rank < 4; ++rank) announced(folder, text("ready-", rank));
  ASSERT_TRUE(run_quietly(text("ip -n ", space(1), " link set ", cable(1), " down")));
  for (int rank = 0; rank < 4; ++rank) {
    const ProgramResult ended = ranks[rank]->result();
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    // Each side misses the other one.
    EXPECT_NE(ended.last_error_line().find(rank < 2 ? "(machine-1" : "rank 0 (machine-0"), std::string::npos)
        << ended.err;
  }
}

TEST_F(TwoMachines, AKilledRankIsNamedOnTheOtherMachine) {
  const testing::TemporaryFolder folder;
  const auto ranks = start_ranks("rank_program loop " + folder.path().string());
  for (int rank = 0; rank < 4; ++rank) announced(folder, text("ready-", rank));
  ::kill(announced(folder, "ready-3"), SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    const ProgramResult ended = ranks[rank]->result();
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    EXPECT_NE(ended.last_error_line().find("rank 3 (machine-1"), std::string::npos) << ended.err;
  }
}

TEST_F(TwoMachines, ARunMakesTheFilesOfOneProcess) {
  const TrainingFiles files;
  const std::string recipe = files.recipe(kSmallLora + "log: {tensorboard: false}\n");
  const std::string command =
      text("asterism train ", recipe, " --set train.deterministic=strict --set parallel.expert=2");
  for (Program* rank : start_ranks(command)) {
    const ProgramResult ended = rank->result();
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  const std::string result = read_text(files.run("adapter/adapter_model.safetensors"));
  fs::remove_all(files / "runs");
  const ProgramResult alone = testing::run_asterism({"train", recipe, "--set", "train.deterministic=strict"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_TRUE(result == read_text(files.run("adapter/adapter_model.safetensors")));
}

const fs::path kTorchrun = ASTERISM_SOURCE_DIR "/.venv/bin/torchrun";

std::string torchrun_of_node(int node, const std::string& address, uint16_t port) {
  return text(kTorchrun.string(), " --no-python --nnodes 2 --node-rank ", node, " --nproc-per-node 2 --master-addr ",
              address, " --master-port ", port, " ", ASTERISM_BINARY_DIR, "/rank_program movements");
}

TEST_F(TwoMachines, TorchrunOnEach) {
  if (!fs::exists(kTorchrun)) GTEST_SKIP() << kTorchrun << " is not here: run make setup";
  Program* nodes[] = {&start(0, "exec " + torchrun_of_node(0, kAddressOfFirst, 29518)),
                      &start(1, "exec " + torchrun_of_node(1, kAddressOfFirst, 29518))};
  for (Program* node : nodes) EXPECT_EQ(node->result().exit_code, 0) << node->result().err;
}

TEST(TwoNodes, OfTorchrunOnOneMachine) {
  if (!fs::exists(kTorchrun)) GTEST_SKIP() << kTorchrun << " is not here: run make setup";
  RankRun run;
  const uint16_t port = testing::free_port();
  const std::string shell = fs::relative("/bin/sh", ASTERISM_BINARY_DIR);
  Program* nodes[] = {&run.start_program(shell, {"-c", "exec " + torchrun_of_node(0, "127.0.0.1", port)}),
                      &run.start_program(shell, {"-c", "exec " + torchrun_of_node(1, "127.0.0.1", port)})};
  for (Program* node : nodes) EXPECT_EQ(node->result().exit_code, 0) << node->result().err;
}

}  // namespace
}  // namespace asterism::cli
