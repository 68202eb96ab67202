#include <gtest/gtest.h>

#include "asterism/checkpoint/safetensors.h"
#include "tests/dist/rank_runs.h"
#include "tests/train/layout_run.h"

// Steps of the optimizer, with every loss, by ranks that are threads and by ranks that are processes: what one rank
// makes of the same rows. tests/parallel/invariance_test.cpp has more meshes and gradients only.
namespace asterism::train {
namespace {

using testing::LayoutCase;
using testing::LayoutResult;
using Routers = LayoutCase::Routers;

struct RankLayout {
  int ranks;
  parallel::MeshRequest mesh;
};

std::ostream& operator<<(std::ostream& out, const RankLayout& layout) {
  return out << layout.ranks << " ranks, expert " << layout.mesh.expert << ", shard " << layout.mesh.shard;
}

const std::vector<RankLayout> kRankLayouts = {{2, {2, 2, 1}}, {2, {1, 1, 2}}, {3, {1, 3, 1}},
                                              {4, {4, 4, 1}}, {4, {2, 2, 2}}, {8, {8, 8, 1}}};

struct Tolerance {
  double relative;  // of each tensor, by its norm
  double norm;      // of the gradients
};
// fp32 sums of other shapes; fp64 all but hides them.
constexpr Tolerance kDoubleTolerance = {1e-9, 1e-11}, kFloatTolerance = {1e-5, 1e-6};

void expect_close_results(const LayoutResult& actual, const LayoutResult& expected, const Tolerance& tolerance) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    ASSERT_TRUE(actual.tensors.contains(name)) << name;
    const at::Tensor& other = actual.tensors.at(name);
    ASSERT_EQ(other.sizes(), tensor.sizes()) << name;
    const double scale = tensor.norm().item<double>(), error = (other - tensor).norm().item<double>();
    // Sums of all tokens that nearly cancel: gradients of hyper-connections (golden/hf README, tolerances).
    const bool cancels = !name.starts_with("weight.") && (name.ends_with("scale") || name.ends_with("base"));
    EXPECT_LE(error, (cancels ? 10.0 : 1.0) * tolerance.relative * scale + 1e-30) << name;
  }
  const at::Tensor norms = expected.losses().select(1, 3);
  EXPECT_LE(((actual.losses().select(1, 3) - norms) / norms).abs().max().item<double>(), tolerance.norm);
}

void check_layouts(const LayoutCase& what, const LayoutResult& expected, const Tolerance& tolerance,
                   const std::vector<RankLayout>& layouts = kRankLayouts) {
  for (const RankLayout& layout : layouts) {
    SCOPED_TRACE(::testing::Message() << layout);
    expect_close_results(testing::run_layout_threads(what, layout.ranks, layout.mesh), expected, tolerance);
  }
}

void check_layouts(const LayoutCase& what, const Tolerance& tolerance = kDoubleTolerance,
                   const std::vector<RankLayout>& layouts = kRankLayouts) {
  check_layouts(what, testing::run_layout_alone(what), tolerance, layouts);
}

// One of each kind, for what concerns a kind only.
const std::vector<RankLayout> kSomeRankLayouts = {{3, {1, 3, 1}}, {4, {2, 2, 2}}};

TEST(Layout, WeightsAfterThreeStepsAreThoseOfOneRank) {
  for (const bool lora : {false, true}) check_layouts({.lora = lora, .optimizer = {.lr = 1e-2}});
}

TEST(Layout, WeightsAfterThreeStepsInSinglePrecision) {
  for (const char* name : {"full", "lora"}) {
    check_layouts(testing::named_layout_cases().at(name), kFloatTolerance);
  }
}

TEST(Layout, TheBalanceLossIsThatOfOneRank) {  // TC5, the part of several ranks
  for (const int64_t micro_batch : {1, 2}) {
    const LayoutCase what{.routers = Routers::kLearned, .balance_weight = 0.5, .micro_batch = micro_batch};
    const LayoutResult expected = testing::run_layout_alone(what);
    EXPECT_GT(expected.losses()[0][1].item<double>(), 0.0);
    check_layouts(what, expected, kDoubleTolerance);
  }
}

TEST(Layout, TheLossOfTheIndexerIsThatOfOneRank) {
  const LayoutCase what{.indexer_kl = true, .micro_batch = 2};
  const LayoutResult expected = testing::run_layout_alone(what);
  EXPECT_GT(expected.losses()[0][2].item<double>(), 0.0);
  const std::string q = "model.layers.1.self_attn.compressor.indexer.q_b_proj.weight";
  ASSERT_TRUE(expected.tensors.contains("gradient." + q)) << q;
  EXPECT_GT(expected.tensors.at("gradient." + q).norm().item<double>(), 0.0);
  check_layouts(what, expected, kDoubleTolerance);
}

TEST(Layout, AccumulationAndPackingChangeNothing) {
  // The same six documents: a row each, two a row, all in one; computed by ones, by threes, or all at once.
  const std::vector<std::vector<std::vector<int64_t>>> packings = {
      {{9}, {4}, {13}, {5}, {12}, {7}}, {{9, 4}, {13, 5}, {12, 7}}, {{9, 4, 13, 5, 12, 7}}};
  for (const bool lora : {false, true}) {
    LayoutCase what{.lora = lora, .balance_weight = 0.1, .indexer_kl = !lora, .rows = packings.back(), .steps = 1};
    const LayoutResult expected = testing::run_layout_alone(what);
    for (const auto& rows : packings) {
      for (const int64_t micro_batch : {1, 3, 6}) {
        if (micro_batch > static_cast<int64_t>(rows.size())) continue;
        what.rows = rows;
        what.micro_batch = micro_batch;
        SCOPED_TRACE(::testing::Message() << rows.size() << " rows, micro-batches of " << micro_batch);
        expect_close_results(testing::run_layout_alone(what), expected, kDoubleTolerance);
        check_layouts(what, expected, kDoubleTolerance, kSomeRankLayouts);
      }
    }
  }
}

TEST(Layout, EitherKindOfRouterGivesTheStepsOfOneRank) {
  for (const Routers routers : {Routers::kLearned, Routers::kHash}) check_layouts({.routers = routers});
}

TEST(Layout, SixExpertsOnFourRanks) {  // TC35
  for (const bool lora : {false, true}) {
    check_layouts({.lora = lora}, kDoubleTolerance, {{4, {4, 4, 1}}, {8, {4, 2, 4}}});
  }
}

TEST(Layout, MoreRanksThanRows) {
  check_layouts({.rows = {{9, 4}, {6}}});
  check_layouts({.lora = true, .rows = {{11}}});
}

TEST(Layout, ARankWhoseRowsHoldNoTrainedToken) {
  for (const bool lora : {false, true}) check_layouts({.lora = lora, .untrained_row = 1});
}

TEST(Layout, AllTokensToTheSameExperts) {  // TC28
  for (const Routers routers : {Routers::kBoth, Routers::kLearned, Routers::kHash}) {
    check_layouts({.routers = routers, .all_to_one_expert = true});
  }
  check_layouts({.lora = true, .all_to_one_expert = true, .rows = {{9}}});
}

// In strict mode one rank is a layout like any other.
void expect_same_results(const LayoutResult& actual, const LayoutResult& expected) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    EXPECT_TRUE(at::equal(actual.tensors.at(name), tensor)) << name;
  }
}

TEST(Layout, StrictStepsHaveTheSameBits) {  // TC29
  LayoutCase uneven = testing::named_layout_cases().at("strict-full");
  uneven.rows = {{9, 4}, {6}, {3, 3}};
  uneven.untrained_row = 1;
  uneven.all_to_one_expert = true;
  std::vector<LayoutCase> cases = {uneven};
  for (const char* name : {"strict-full", "strict-lora"}) cases.push_back(testing::named_layout_cases().at(name));
  for (const LayoutCase& what : cases) {
    const LayoutResult expected = testing::run_layout_threads(what, 1, {});
    for (const RankLayout& layout : kRankLayouts) {
      SCOPED_TRACE(::testing::Message() << layout << (what.lora ? ", LoRA" : ""));
      expect_same_results(testing::run_layout_threads(what, layout.ranks, layout.mesh), expected);
    }
  }
}

/// The same case by processes that talk over gloo; the result of the first rank.
LayoutResult run_layout_processes(const std::string& name, const RankLayout& layout) {
  const testing::TemporaryFolder folder;
  testing::RankRun run;
  const auto number = [](int value) { return std::to_string(value); };
  const testing::ProgramResult ended =
      run.start_program("layout_program", {"launch", number(layout.ranks), name, number(layout.mesh.expert),
                                           number(layout.mesh.shard), number(layout.mesh.replicate), folder.path()})
          .result();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  LayoutResult result;
  const auto file = checkpoint::SafetensorsFile::open(folder / "result.safetensors");
  for (const auto& info : file.tensors()) result.tensors[info.name] = file.copy(info.name);
  return result;
}

const std::vector<RankLayout> kProcessLayouts = {{2, {2, 2, 1}}, {3, {1, 3, 1}}, {4, {2, 2, 2}}};

TEST(Layout, ProcessesMakeTheStepsOfOneRank) {
  for (const char* name : {"full", "lora"}) {
    const LayoutResult expected = testing::run_layout_alone(testing::named_layout_cases().at(name));
    for (const RankLayout& layout : kProcessLayouts) {
      SCOPED_TRACE(::testing::Message() << name << ", " << layout);
      expect_close_results(run_layout_processes(name, layout), expected, kFloatTolerance);
    }
  }
}

TEST(Layout, StrictProcessesHaveTheBitsOfThreads) {
  for (const char* name : {"strict-full", "strict-lora"}) {
    const LayoutResult expected = testing::run_layout_threads(testing::named_layout_cases().at(name), 1, {});
    for (const RankLayout& layout : kProcessLayouts) {
      SCOPED_TRACE(::testing::Message() << name << ", " << layout);
      expect_same_results(run_layout_processes(name, layout), expected);
    }
  }
}

}  // namespace
}  // namespace asterism::train
