#include "asterism/cli/recipe_file.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using Sources = std::vector<data::DataSource>;

constexpr const char* kMinimal =
    "name: demo\n"
    "model:\n"
    "  path: base\n"
    "data:\n"
    "  train: chats.jsonl\n"
    "train:\n"
    "  steps: 10\n";

std::string error_text(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return error_of<InputError>([&] { parse_recipe(yaml, "run.yaml", overrides); });
}

void expect_fragments(const std::string& error, const std::vector<std::string>& fragments) {
  for (const std::string& fragment : fragments) {
    EXPECT_NE(error.find(fragment), std::string::npos) << "expected \"" << fragment << "\" in:\n" << error;
  }
}

TEST(RecipeFile, MissingKeysHaveTheirDefaults) {
  const train::Recipe recipe = parse_recipe(kMinimal, "run.yaml");
  EXPECT_EQ(recipe.name, "demo");
  EXPECT_EQ(recipe.data.train, (Sources{{"chats.jsonl"}}));
  EXPECT_EQ(recipe.train.steps, 10);
  EXPECT_EQ(recipe.train.batch, 64);
  EXPECT_EQ(recipe.optimizer.lr, 1e-4);
  EXPECT_FALSE(recipe.lora);
}

void expect_every_data_key(const train::DataSection& data) {
  EXPECT_EQ(data.train, (Sources{{"a.jsonl"}, {"b/*.jsonl"}}));
  EXPECT_EQ(data.eval, std::vector<std::string>{"c.jsonl"});
  EXPECT_EQ(data.variant, "v4-preview");
  EXPECT_EQ(data.thinking, "chat");
  EXPECT_EQ(data.reasoning_effort, "max");
  EXPECT_FALSE(data.drop_thinking);
  EXPECT_EQ(data.history, "split");
  EXPECT_EQ(data.sequence_length, 128);
  EXPECT_FALSE(data.packing);
  EXPECT_EQ(data.overlong, "truncate");
  EXPECT_EQ(data.bad_rows, "skip");
  EXPECT_EQ(data.without_targets, "error");
  EXPECT_FALSE(data.shuffle);
  EXPECT_EQ(data.shuffle_buffer, 7);
  EXPECT_EQ(data.workers, 0);
}

TEST(RecipeFile, ReadsEveryKey) {
  const train::Recipe r = parse_recipe(R"(
name: "all keys"
output: out
seed: 18446744073709551615
model: {path: base, tokenizer: tok, storage: bf16, compute: fp32, indexer: frozen, mtp_weight: 0.3}
data:
  train: [a.jsonl, "b/*.jsonl"]
  eval: c.jsonl
  variant: v4-preview
  thinking: chat
  reasoning_effort: max
  drop_thinking: false
  history: split
  sequence_length: 128
  packing: false
  overlong: truncate
  bad_rows: skip
  without_targets: error
  shuffle: false
  shuffle_buffer: 7
  workers: 0
lora: {rank: 4, alpha: 2.5, rslora: true, dropout: 0.1, targets: [attention, "*.gate_proj"]}
train: {epochs: 1.5, batch: 6, micro_batch: 4, recompute: none, balance_loss: 1e-4}
optimizer: {name: adamw, lr: 2e-5, betas: [0.8, 0.99], eps: 1e-20, weight_decay: 0, clip_norm: 0}
schedule: {warmup_steps: 3, decay: linear, min_ratio: 1}
checkpoint: {every: 0, keep: 1, resume: never}
eval: {every: 5}
log: {every: 2, tensorboard: false}
)",
                                       "run.yaml");
  EXPECT_EQ(r.name, "all keys");
  EXPECT_EQ(r.output, "out");
  EXPECT_EQ(r.seed, UINT64_MAX);
  EXPECT_EQ(r.model.path, "base");
  EXPECT_EQ(r.model.tokenizer, "tok");
  EXPECT_EQ(r.model.storage, train::Storage::kBf16);
  EXPECT_EQ(r.model.compute, train::Compute::kFp32);
  EXPECT_EQ(r.model.indexer, train::IndexerMode::kFrozen);
  EXPECT_EQ(r.model.mtp_weight, 0.3);
  expect_every_data_key(r.data);
  ASSERT_TRUE(r.lora);
  EXPECT_EQ(r.lora->config.rank, 4);
  EXPECT_EQ(r.lora->config.alpha, 2.5);
  EXPECT_TRUE(r.lora->config.rslora);
  EXPECT_EQ(r.lora->config.dropout, 0.1);
  EXPECT_EQ(r.lora->config.targets, (std::vector<std::string>{"attention", "*.gate_proj"}));
  EXPECT_EQ(r.train.steps, 0);
  EXPECT_EQ(r.train.epochs, 1.5);
  EXPECT_EQ(r.train.batch, 6);
  EXPECT_EQ(r.train.micro_batch, 4);
  EXPECT_EQ(r.train.recompute, model::Recompute::kNone);
  EXPECT_EQ(r.train.balance_loss, 1e-4);
  EXPECT_EQ(r.optimizer.lr, 2e-5);
  EXPECT_EQ(r.optimizer.beta1, 0.8);
  EXPECT_EQ(r.optimizer.beta2, 0.99);
  EXPECT_EQ(r.optimizer.eps, 1e-20);
  EXPECT_EQ(r.optimizer.weight_decay, 0.0);
  EXPECT_EQ(r.optimizer.clip_norm, 0.0);
  EXPECT_EQ(r.schedule.warmup_steps, 3);
  EXPECT_EQ(r.schedule.decay, train::Decay::kLinear);
  EXPECT_EQ(r.schedule.min_ratio, 1.0);
  EXPECT_EQ(r.checkpoint.every, 0);
  EXPECT_EQ(r.checkpoint.keep, 1);
  EXPECT_EQ(r.checkpoint.resume, "never");
  EXPECT_EQ(r.eval_every, 5);
  EXPECT_EQ(r.log.every, 2);
  EXPECT_FALSE(r.log.tensorboard);
}

TEST(RecipeFile, PrintedRecipeReadsAsItself) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"optimizer.lr=1e-7", "optimizer.eps=1e-20", "seed=18446744073709551615"},
      {"name=yes", "output=a: b # \"c\" \\ \t end", "data.train=[\"*.jsonl\", '[x]', \"1e3\", nul]"},
      {"lora.rank=3", "lora.alpha=0.1"},
      {"lora.from=adapter", "lora.dropout=0.25"},
      {"data.eval=x.jsonl", "eval.every=3", "model.indexer=kl", "schedule.decay=constant"},
  };
  for (const auto& overrides : cases) {
    const std::string printed = recipe_to_yaml(parse_recipe(kMinimal, "run.yaml", overrides));
    EXPECT_EQ(recipe_to_yaml(parse_recipe(printed, "printed.yaml")), printed);
  }
  const train::Recipe odd = parse_recipe(kMinimal, "run.yaml", cases[2]);
  const train::Recipe again = parse_recipe(recipe_to_yaml(odd), "printed.yaml");
  EXPECT_EQ(again.name, "yes");
  EXPECT_EQ(again.output, "a: b # \"c\" \\ \t end");
  EXPECT_EQ(again.data.train, (Sources{{"*.jsonl"}, {"[x]"}, {"1e3"}, {"nul"}}));
}

TEST(RecipeFile, PrintsEveryKeyThatApplies) {
  EXPECT_EQ(recipe_to_yaml(parse_recipe(kMinimal, "run.yaml", {"lora.from=old", "optimizer.lr=1e-7"})),
            R"(name: demo
output: runs
seed: 0

model:
  path: base
  storage: auto
  compute: auto
  indexer: frozen
  mtp_weight: 0

data:
  train: [chats.jsonl]
  variant: auto
  thinking: auto
  reasoning_effort: none
  drop_thinking: true
  history: auto
  special_in_content: allow
  reject_unframeable: false
  sequence_length: 4096
  packing: true
  overlong: error
  bad_rows: error
  without_targets: skip
  shuffle: true
  shuffle_buffer: 10000
  workers: 2

lora:
  from: old
  dropout: 0

parallel:
  expert: 1
  shard: auto
  replicate: auto

train:
  steps: 10
  batch: 64
  micro_batch: 1
  recompute: blocks
  deterministic: fast
  balance_loss: 0

optimizer:
  name: adamw
  lr: 1.0e-07
  betas: [0.9, 0.95]
  eps: 1.0e-08
  weight_decay: 0.1
  clip_norm: 1

schedule:
  warmup_steps: 0
  decay: cosine
  min_ratio: 0.1

checkpoint:
  every: 500
  keep: 2
  resume: auto

eval:
  every: 0

log:
  every: 1
  tensorboard: true
)");
}

TEST(RecipeFile, AMixtureIsReadAndPrintedWithItsWeights) {
  const std::string yaml =
      "name: demo\nmodel: {path: base}\ntrain: {steps: 10}\n"
      "data:\n  train:\n    - {path: a.jsonl, weight: 2}\n    - path: \"b/*.gz\"\n      weight: 0.5\n    - c\n";
  const Sources expected = {{"a.jsonl", 2.0}, {"b/*.gz", 0.5}, {"c", 1.0}};
  const train::Recipe recipe = parse_recipe(yaml, "run.yaml");
  EXPECT_EQ(recipe.data.train, expected);
  const std::string printed = recipe_to_yaml(recipe);
  EXPECT_NE(printed.find("train: [{path: a.jsonl, weight: 2}, {path: \"b/*.gz\", weight: 0.5}, {path: c, weight: 1}]"),
            std::string::npos)
      << printed;
  EXPECT_EQ(parse_recipe(printed, "printed").data.train, expected);
  EXPECT_EQ(parse_recipe(kMinimal, "run.yaml", {"data.train=[{path: a.jsonl, weight: 2}, c]"}).data.train,
            (Sources{{"a.jsonl", 2.0}, {"c", 1.0}}));
}

TEST(RecipeFile, TableAlignsTheValues) {
  const std::string table = recipe_to_table(parse_recipe(kMinimal, "run.yaml"));
  EXPECT_NE(table.find("  name                     demo\n"), std::string::npos) << table;
  EXPECT_NE(table.find("  schedule.warmup_steps    0\n"), std::string::npos) << table;
}

TEST(RecipeFile, OverridesWinOverTheFile) {
  const train::Recipe recipe = parse_recipe(
      kMinimal, "run.yaml", {"train.steps=20", "data.train=*.jsonl", "optimizer.betas=[0.5, 0.6]", "lora.rank=2"});
  EXPECT_EQ(recipe.train.steps, 20);
  EXPECT_EQ(recipe.data.train, (Sources{{"*.jsonl"}}));
  EXPECT_EQ(recipe.optimizer.beta2, 0.6);
  ASSERT_TRUE(recipe.lora);
  EXPECT_EQ(recipe.lora->config.rank, 2);
  EXPECT_EQ(recipe.lora->config.alpha, 16.0);
}

TEST(RecipeFile, ReadsAFileAndNamesIt) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_recipe(folder.write("good.yaml", kMinimal)).name, "demo");
  const auto bad = folder.write("bad.yaml", std::string(kMinimal) + "trian: {}\n");
  expect_fragments(error_of<InputError>([&] { read_recipe(bad); }),
                   {bad.string() + ":8: ", "trian", "did you mean train?"});
  expect_fragments(error_of<InputError>([&] { read_recipe(folder / "absent.yaml"); }), {"absent.yaml", "cannot open"});
  expect_fragments(error_of<InputError>([&] { read_recipe(folder.path()); }), {"not a regular file"});
}

TEST(RecipeFile, RecipesOfTheRepositoryAreGood) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ASTERISM_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(read_recipe(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

struct BadRecipe {
  const char* what;
  std::string yaml;
  std::vector<std::string> fragments;
};

void PrintTo(const BadRecipe& bad, std::ostream* out) {
  *out << bad.what;
}

class BadRecipes : public ::testing::TestWithParam<BadRecipe> {};

TEST_P(BadRecipes, AreRefusedWithThePlaceAndTheFix) {
  const std::string error = error_text(GetParam().yaml);
  expect_fragments(error, GetParam().fragments);
  EXPECT_EQ(error.find("run.yaml"), 0u) << error;
}

// kMinimal has seven lines: what a case adds stands in line 8.
std::string plus(const std::string& more) {
  return kMinimal + more;
}

std::string with_steps(const std::string& steps) {
  return "name: demo\nmodel: {path: base}\ndata: {train: a}\ntrain:\n  steps: " + steps + "\n";
}

const std::vector<BadRecipe> kBadRecipes = {
    {"unknown section", plus("optimiser:\n  lr: 1\n"), {"run.yaml:8:", "unknown key optimiser", "mean optimizer?"}},
    {"unknown top key", plus("sed: 1\n"), {"run.yaml:8:", "unknown key sed", "did you mean seed?", "sections: model"}},
    {"unknown key",
     plus("schedule:\n  warmup: 1\n"),
     {"run.yaml:9:", "unknown key schedule.warmup", "schedule.warmup_steps?", "warmup_steps, decay, min_ratio"}},
    {"key of another section", plus("schedule:\n  lr: 1\n"), {"run.yaml:9:", "did you mean optimizer.lr?"}},
    {"key of later work", plus("parallel:\n  context: 2\n"), {"run.yaml:9:", "unknown key parallel.context"}},
    {"text for a number",
     with_steps("many"),
     {"run.yaml:5: train.steps: expected a whole number, at least 1", "\"many\""}},
    {"fraction for a whole number", with_steps("1.5"), {"run.yaml:5:", "whole number", "\"1.5\""}},
    {"octal number", with_steps("010"), {"run.yaml:5:", "\"010\""}},
    {"hexadecimal number", with_steps("0x10"), {"run.yaml:5:", "\"0x10\""}},
    {"number beyond 64 bits", with_steps("99999999999999999999"), {"run.yaml:5:", "99999999999999999999"}},
    {"zero steps", with_steps("0"), {"run.yaml:5:", "at least 1", "\"0\""}},
    {"nothing for a number", with_steps(""), {"run.yaml:5:", "train.steps", "found nothing"}},
    {"list for a number", with_steps("[1, 2]"), {"run.yaml:5:", "found [1, 2]"}},
    {"map for a number", with_steps("{a: 1}"), {"run.yaml:5:", "found a map"}},
    {"negative seed", plus("seed: -1\n"), {"run.yaml:8: seed:", "from 0 to 2^64 - 1", "\"-1\""}},
    {"infinite rate", plus("optimizer: {lr: inf}\n"), {"run.yaml:8: optimizer.lr: expected a number, above 0", "inf"}},
    {"YAML infinity", plus("optimizer: {lr: .inf}\n"), {"run.yaml:8: optimizer.lr:", ".inf"}},
    {"rate of zero", plus("optimizer: {lr: 0}\n"), {"optimizer.lr", "above 0"}},
    {"number with a unit", plus("optimizer: {eps: 1e-8x}\n"), {"optimizer.eps", "1e-8x"}},
    {"share above one", plus("schedule: {min_ratio: 1.1}\n"), {"schedule.min_ratio", "at least 0 and at most 1"}},
    {"dropout of one", plus("lora: {dropout: 1}\n"), {"lora.dropout", "at least 0 and below 1"}},
    {"one beta", plus("optimizer: {betas: [0.9]}\n"), {"optimizer.betas", "list of two numbers", "[0.9]"}},
    {"beta of one", plus("optimizer: {betas: [0.9, 1]}\n"), {"optimizer.betas", "below 1"}},
    {"muon", plus("optimizer: {name: muon}\n"), {"optimizer.name", "adamw (muon is not there yet)", "\"muon\""}},
    {"yes for true", plus("log: {tensorboard: yes}\n"), {"log.tensorboard: expected true or false", "\"yes\""}},
    {"unknown word", plus("schedule: {decay: cosin}\n"), {"schedule.decay: expected cosine | linear | constant"}},
    {"case of a word", plus("schedule: {decay: Cosine}\n"), {"schedule.decay", "\"Cosine\""}},
    {"storage that would round trained weights",
     "name: a\nmodel: {path: b, storage: fp8}\n",
     {"run.yaml:2: model.storage: fp8 is for weights that are not trained"}},
    {"weight of zero",
     "name: a\ndata:\n  train: [{path: x, weight: 0}]\n",
     {"run.yaml:3: data.train", "{path, weight} with a weight above 0", "[{path: x, weight: 0}]"}},
    {"weight that is no number", "data: {train: [{path: x, weight: much}]}\n", {"run.yaml:1: data.train", "much"}},
    {"weight without a path", "data: {train: [{weight: 1}]}\n", {"run.yaml:1: data.train", "[{weight: 1}]"}},
    {"unknown key of a source", "data: {train: [a, {path: x, wieght: 2}]}\n", {"[a, {path: x, wieght: 2}]"}},
    {"two paths of a source", "data: {train: [{path: x, path: y}]}\n", {"run.yaml:1: data.train"}},
    {"list in a list", "data: {train: [a, [b]]}\n", {"data.train", "a list that holds lists or maps"}},
    {"weights for evaluation", "data: {eval: [{path: x, weight: 2}]}\n", {"run.yaml:1: data.eval"}},
    {"empty list", "name: a\ndata:\n  train: []\n", {"run.yaml:3: data.train", "found []"}},
    {"empty text", "name: \"\"\n", {"run.yaml:1: name: expected a name for the run", "\"\""}},
    {"name with a slash", "name: a/b\n", {"run.yaml:1: name: expected a name for the run, without /"}},
    {"name of the parent", "name: ..\n", {"run.yaml:1: name: expected"}},
    {"map as name", "name: {a: b}\n", {"run.yaml:1: name:", "found a map"}},
    {"repeated key", "name: a\nname: b\n", {"run.yaml:2: name is written twice, first at run.yaml:1"}},
    {"repeated key of a section",
     plus("log:\n  every: 1\n  every: 2\n"),
     {"run.yaml:10: log.every is written twice", "run.yaml:9"}},
    {"repeated section", plus("train:\n  batch: 2\n"), {"run.yaml:8: train is written twice, first at run.yaml:6"}},
    {"text for a section", plus("log: 5\n"), {"run.yaml:8: log is a section", "found \"5\""}},
    {"list for a section", plus("log: [a]\n"), {"run.yaml:8: log is a section", "[a]"}},
    {"list as a key", plus("? [a, b]\n: 1\n"), {"a key must be plain text"}},
    {"empty LoRA section", plus("lora:\n"), {"run.yaml:8: lora has no keys", "lora.rank"}},
    {"LoRA of an empty map", plus("lora: {}\n"), {"run.yaml:8: lora has no keys"}},
    {"steps and epochs", plus("  epochs: 2\n"), {"run.yaml:7:", "both train.steps and train.epochs", "run.yaml:8"}},
    {"neither steps nor epochs",
     "name: a\nmodel: {path: b}\ndata: {train: c}\n",
     {"run.yaml: neither train.steps nor train.epochs"}},
    {"missing name", "model: {path: b}\ndata: {train: c}\ntrain: {steps: 1}\n", {"run.yaml: name is missing"}},
    {"missing model", "name: a\ndata: {train: c}\ntrain: {steps: 1}\n", {"run.yaml: model.path is missing"}},
    {"missing data", "name: a\nmodel: {path: b}\ntrain: {steps: 1}\n", {"run.yaml: data.train is missing"}},
    {"micro-batch above batch",
     plus("  batch: 2\n  micro_batch: 4\n"),
     {"run.yaml:9: train.micro_batch is 4, more than train.batch (2)"}},
    {"batch below micro-batch", plus("  micro_batch: 65\n"), {"run.yaml:8: train.micro_batch is 65", "(64)"}},
    {"warm-up beyond the end",
     plus("schedule: {warmup_steps: 11}\n"),
     {"run.yaml:8: schedule.warmup_steps is 11", "train.steps (10)"}},
    {"adapter and rank",
     plus("lora:\n  from: old\n  rank: 8\n"),
     {"run.yaml:10: lora.rank cannot be set together with lora.from (run.yaml:9)"}},
    {"adapter and targets", plus("lora:\n  targets: [experts]\n  from: old\n"), {"run.yaml:9: lora.targets cannot"}},
    {"indexer loss with LoRA",
     "name: a\nmodel: {path: b, indexer: kl}\ndata: {train: c}\ntrain: {steps: 1}\nlora: {rank: 1}\n",
     {"run.yaml:2: model.indexer: kl", "remove the section lora"}},
    {"evaluation without data", plus("eval: {every: 2}\n"), {"run.yaml:8: eval.every is 2 but data.eval"}},
    {"row of one token", "name: a\ndata: {sequence_length: 1}\n", {"run.yaml:2: data.sequence_length", "at least 2"}},
    {"empty file", "", {"run.yaml: the recipe is empty"}},
    {"comments only", "# name: a\n\n", {"run.yaml: the recipe is empty"}},
    {"list as a recipe", "- name: a\n", {"run.yaml:1: expected keys and sections", "found [{name: a}]"}},
    {"text as a recipe", "just text\n", {"run.yaml:1: expected keys and sections", "just text"}},
    {"two documents", "name: a\n---\nname: b\n", {"run.yaml: expected one YAML document, found 2"}},
    {"tab as indentation", "name: a\nmodel:\n\tpath: b\n", {"run.yaml:3:", "not valid YAML", "indented by spaces"}},
    {"open bracket", "name: a\ndata: {train: [a\n", {"not valid YAML"}},
    {"open quote", "name: \"a\nmodel: {path: b}\n", {"run.yaml: model.path is missing"}},
    {"pattern without quotes", "data:\n  train: *.jsonl\n", {"run.yaml:2:10: not valid YAML", "needs quotes"}},
    {"colon within a text", "name: a: b\n", {"run.yaml:1:", "not valid YAML", "needs quotes"}},
    {"merge key", "model: &m {path: b}\ndata:\n  <<: *m\n", {"run.yaml:3: unknown key data.<<"}},
    {"very deep nesting", "name: " + std::string(5000, '['), {"not valid YAML"}},
};

INSTANTIATE_TEST_SUITE_P(RecipeFile, BadRecipes, ::testing::ValuesIn(kBadRecipes));

TEST(RecipeFile, ListsAllProblemsAtOnce) {
  const std::string error = error_text("name: a\nsede: 1\ntrain: {batch: 0}\nlog: {every: x}\n");
  expect_fragments(error, {"run.yaml:2: unknown key sede", "\nrun.yaml:3: train.batch", "\nrun.yaml:4: log.every"});
}

TEST(RecipeFile, OverridesFollowTheSameRules) {
  expect_fragments(error_text(kMinimal, {"train.batch"}), {"--set train.batch: expected section.key=value"});
  expect_fragments(error_text(kMinimal, {"=3"}), {"--set =3: expected section.key=value"});
  expect_fragments(error_text(kMinimal, {"train.bach=3"}),
                   {"--set train.bach=3: unknown key train.bach", "train.batch?"});
  expect_fragments(error_text(kMinimal, {"batch=3"}), {"unknown key batch; did you mean train.batch?"});
  expect_fragments(error_text(kMinimal, {"train=3"}), {"--set train=3: unknown key train"});
  expect_fragments(error_text(kMinimal, {"train.batch=x"}),
                   {"--set train.batch=x: train.batch: expected a whole number"});
  expect_fragments(error_text(kMinimal, {"train.batch="}), {"train.batch: expected a whole number", "found \"\""});
  expect_fragments(error_text(kMinimal, {"train.batch=1", "train.batch=2"}), {"--set train.batch=2", "set twice"});
  expect_fragments(error_text(kMinimal, {"data.train=[a"}), {"--set data.train=[a: not a list in YAML"});
  expect_fragments(error_text(kMinimal, {"train.epochs=1"}), {"run.yaml:7: both", "--set train.epochs=1"});
}

TEST(RecipeFile, AnEvaluationTakesKeysOfDataAndModel) {
  const train::Recipe recipe = recipe_for_evaluation("base", {"a", "b"}, {"data.thinking=chat", "model.compute=bf16"});
  EXPECT_EQ(recipe.model.path, "base");
  EXPECT_EQ(recipe.model.compute, train::Compute::kBf16);
  EXPECT_EQ(recipe.data.eval, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(recipe.data.thinking, "chat");
  expect_fragments(error_of<InputError>([] { recipe_for_evaluation("base", {"a"}, {"train.batch=3"}); }),
                   {"--set train.batch=3", "sections data and model"});
  expect_fragments(error_of<InputError>([] { recipe_for_evaluation("base", {"a"}, {"data.thinkin=chat"}); }),
                   {"data.thinking?"});
}

}  // namespace
}  // namespace asterism::cli
