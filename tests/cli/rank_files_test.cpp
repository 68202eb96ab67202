#include "asterism/cli/rank_files.h"

#include <gtest/gtest.h>

#include <mutex>

#include "asterism/checkpoint/shards.h"
#include "asterism/core/file.h"
#include "asterism/dist/thread_transport.h"
#include "tests/cli/training_files.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;

// What every rank gets that asks for a path of its own.
std::vector<RankFiles> find_on_ranks(const std::vector<fs::path>& paths,
                                     const std::function<void(int, const RankFiles&)>& look = {}) {
  std::vector<RankFiles> found(paths.size());
  std::mutex mutex;
  dist::run_thread_ranks(static_cast<int>(paths.size()), [&](const std::shared_ptr<dist::Transport>& transport) {
    dist::Comm world(transport, "world");
    const RankFiles files = find_rank_files(world, paths[world.rank()]);
    if (look) look(world.rank(), files);
    const std::scoped_lock lock(mutex);
    found[world.rank()] = files;
  });
  return found;
}

TEST(RankFiles, FilesThatAllHaveStayWhereTheyAre) {
  const TrainingFiles files;
  for (const RankFiles& found : find_on_ranks({files / "model", files / "model"})) {
    EXPECT_TRUE(found.everywhere);
    EXPECT_EQ(found.path, files / "model");
    EXPECT_EQ(found.scratch, nullptr);
  }
}

TEST(RankFiles, ARankWithoutTheFolderGetsAllButTheValues) {
  const TrainingFiles files(300);  // with a tokenizer in the folder
  fs::path stand_in;
  find_on_ranks({files / "model", files / "nothing", files / "model"}, [&](int rank, const RankFiles& found) {
    EXPECT_FALSE(found.everywhere);
    if (rank != 1) {
      EXPECT_EQ(found.path, files / "model");
      return;
    }
    stand_in = found.path;
    for (const char* name : {"config.json", "tokenizer.json"}) {
      EXPECT_EQ(read_text(found.path / name), read_text(files / "model" / name)) << name;
    }
    const auto own = checkpoint::Source::open(found.path), whole = checkpoint::Source::open(files / "model");
    EXPECT_EQ(own.names(), whole.names());
    for (const std::string& name : own.names()) {
      EXPECT_EQ(own.info(name).shape, whole.info(name).shape);
      EXPECT_EQ(own.tensor(name).to(at::kDouble).abs().sum().item<double>(), 0.0) << "no values";
    }
  });
  ASSERT_FALSE(stand_in.empty());
  EXPECT_FALSE(fs::exists(stand_in)) << "it goes with the last handle";
}

TEST(RankFiles, AFileHasAStandInOfItsName) {
  const TrainingFiles files;
  find_on_ranks({files / "tokenizer/tokenizer.json", files / "nothing/tokenizer.json"},
                [&](int, const RankFiles& found) {
                  EXPECT_EQ(found.path.filename(), "tokenizer.json");
                  EXPECT_EQ(read_text(found.path), read_text(files / "tokenizer/tokenizer.json"));
                });
}

TEST(RankFiles, WhatRankZeroLacksHasNoStandIn) {
  const TrainingFiles files;
  const auto found = find_on_ranks({files / "nothing", files / "model"});
  EXPECT_EQ(found[0].path, files / "nothing");
  EXPECT_EQ(found[1].path, files / "model");
}

}  // namespace
}  // namespace asterism::cli
