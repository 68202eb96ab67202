// Ranks that were started wrongly, or fail by themselves: all end, and say who and why. Started one by one, as srun
// does, so that each has its own exit code.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/dist/rank_runs.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::Program;
using testing::ProgramResult;
using testing::RankRun;

/// A folder for each of two ranks, with the same recipe of relative paths; what differs is up to the test.
class RefusedRanks : public ::testing::Test {
 protected:
  RefusedRanks() {
    std::string recipe = read_text(files_.recipe(kSmallLora));
    const std::string root = files_.folder().path().string() + "/";
    for (size_t at = 0; (at = recipe.find(root)) != std::string::npos;) recipe.erase(at, root.size());
    for (const char* name : {"here", "there"}) {
      const fs::path folder = files_ / name;
      fs::create_directory(folder);
      for (const char* file : {"model", "train.jsonl", "eval.jsonl"}) fs::create_symlink(files_ / file, folder / file);
      files_.folder().write(text(name, "/recipe.yaml"), recipe);
    }
  }

  /// Rank `rank` of `size`, in the folder `name`; `before` is said to the shell first.
  Program& start(int rank, int size, const std::string& name, const std::string& more = "",
                 const std::string& before = "") {
    const std::string command = text("cd ", (files_ / name).string(), " && ", before, " RANK=", rank,
                                     " WORLD_SIZE=", size, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port_, " exec ",
                                     ASTERISM_BINARY_DIR, "/asterism train recipe.yaml ", more);
    return run_.start_program(fs::relative("/bin/sh", ASTERISM_BINARY_DIR), {"-c", command});
  }

  TrainingFiles files_;
  uint16_t port_ = testing::free_port();
  RankRun run_;
};

void expect_ended(Program& rank, int exit_code, const std::vector<std::string>& said) {
  const ProgramResult ended = rank.result();
  EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
  for (const std::string& part : said) {
    EXPECT_NE(ended.last_error_line().find(part), std::string::npos) << part << " is not in:\n" << ended.err;
  }
}

TEST_F(RefusedRanks, AnotherRecipeOnOneRank) {
  Program& first = start(0, 2, "here");
  Program& second = start(1, 2, "there", "--set optimizer.lr=0.5");
  for (Program* rank : {&first, &second}) {
    expect_ended(*rank, 2, {"on rank 1 (", "recipe, line ", "is 'lr: 0.5', on rank 0 'lr: 0.01'"});
  }
  EXPECT_FALSE(fs::exists(files_ / "here/runs"));
}

TEST_F(RefusedRanks, AnotherCheckpointOnOneRank) {
  fs::remove(files_ / "there/model");
  run_init({.config = files_ / "config.json", .out = files_ / "there/model", .seed = 2});
  Program& first = start(0, 2, "here");
  Program& second = start(1, 2, "there");
  for (Program* rank : {&first, &second}) expect_ended(*rank, 2, {"on rank 1 (", "checkpoint"});
  EXPECT_FALSE(fs::exists(files_ / "here/runs"));
}

TEST_F(RefusedRanks, AnotherNumberOfRanksOnOneRank) {
  Program& first = start(0, 2, "here");
  Program& second = start(1, 3, "there");
  const ProgramResult results[] = {first.result(), second.result()};
  // The one that comes second finds it, and the other may have met both of its ranks by then.
  EXPECT_TRUE(results[0].exit_code == 2 || results[1].exit_code == 2) << results[0].err << results[1].err;
  for (const ProgramResult& ended : results) {
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_NE(ended.err.find("WORLD_SIZE must be the same"), std::string::npos) << ended.err;
  }
}

TEST_F(RefusedRanks, APortThatIsTaken) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  expect_ended(start(0, 2, "here"), 2, {text("port ", port_), "MASTER_PORT"});
  ::close(listener);
}

TEST_F(RefusedRanks, DataThatOneRankDoesNotFind) {
  fs::remove(files_ / "there/train.jsonl");
  Program& first = start(0, 2, "here");
  Program& second = start(1, 2, "there");
  expect_ended(second, 2, {"train.jsonl"});
  expect_ended(first, 1, {"rank 1 (", "train.jsonl"});
}

TEST_F(RefusedRanks, AFirstRankThatCannotWriteEndsAll) {
  // Files may have 16 KB: enough for the recipe and the log, not for a checkpoint.
  Program& first = start(0, 2, "here", "--set checkpoint.every=1", "trap '' XFSZ && ulimit -f 32 &&");
  Program& second = start(1, 2, "there", "--set checkpoint.every=1");
  expect_ended(first, 1, {"File too large"});
  expect_ended(second, 1, {"rank 0 (", "File too large"});
}

}  // namespace
}  // namespace asterism::cli
