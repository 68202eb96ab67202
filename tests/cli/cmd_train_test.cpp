#include <gtest/gtest.h>

#include <csignal>

#include "asterism/cli/command_line.h"
#include "asterism/cli/recipe_file.h"
#include "asterism/cli/session.h"
#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::ProgramResult;
using testing::run_asterism;

/// Changes the JSON header of a .safetensors file and leaves its data.
template <typename Change>
void change_header(const fs::path& file, Change&& change) {
  const std::string content = read_text(file);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  auto header = nlohmann::ordered_json::parse(content.substr(sizeof(length), length));
  change(header);
  const std::string changed = header.dump();
  const uint64_t changed_length = changed.size();
  std::string prefix(sizeof(changed_length), '\0');
  std::memcpy(prefix.data(), &changed_length, sizeof(changed_length));
  write_text_atomically(file, prefix + changed + content.substr(sizeof(length) + length));
}

/// The names of the tensors that differ between two models of one configuration.
std::set<std::string> different_tensors(const fs::path& a, const fs::path& b) {
  model::Model first = load_model(a, train::Storage::kAuto), second = load_model(b, train::Storage::kAuto);
  std::map<std::string, at::Tensor> tensors;
  model::for_each_tensor(first.config, first.weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { tensors[spec.name] = tensor; });
  std::set<std::string> different;
  model::for_each_tensor(second.config, second.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (!at::equal(tensors.at(spec.name), tensor)) different.insert(spec.name);
  });
  return different;
}

class CmdTrain : public ::testing::Test {
 protected:
  /// The program refuses the recipe with these overrides: exit code 2, the text in its message, no run folder.
  void expect_refused(const std::vector<std::string>& overrides, const std::string& fragment,
                      const std::string& sections = kSmallLora) {
    std::vector<std::string> arguments = {"train", files_.recipe(sections)};
    for (const std::string& setting : overrides) arguments.insert(arguments.end(), {"--set", setting});
    const ProgramResult result = run_asterism(arguments);
    EXPECT_EQ(result.exit_code, kWrongInput) << result.err;
    EXPECT_NE(result.err.find("error: "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(fragment), std::string::npos) << "expected \"" << fragment << "\" in\n" << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(files_ / "runs/run"));
  }

  std::string set_file(const std::string& key, const std::string& name) { return key + "=" + (files_ / name).string(); }

  TrainingFiles files_;
};

TEST_F(CmdTrain, ALoraRunLeavesItsFolder) {
  ASSERT_EQ(run_train({.recipe = files_.recipe(kSmallLora), .overrides = {"checkpoint.every=2"}}), 0);
  for (const char* name :
       {"recipe.yaml", "log.txt", "adapter/adapter_config.json", "adapter/adapter_model.safetensors",
        "checkpoints/latest", "checkpoints/step-00000002", "checkpoints/step-00000003", "tensorboard"}) {
    EXPECT_TRUE(fs::exists(files_.run(name))) << name;
  }
  EXPECT_FALSE(fs::exists(files_.run("model")));
  EXPECT_EQ(read_recipe(files_.run("recipe.yaml")).checkpoint.every, 2);
  const auto metrics = files_.metrics();
  ASSERT_EQ(metrics.size(), 3u);
  for (size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].at("step"), i + 1);
  const auto report = files_.report();
  EXPECT_EQ(report.at("mode"), "lora");
  EXPECT_EQ(report.at("last_step"), 3);
  EXPECT_EQ(report.at("input_tokens"), 60);    // three steps of two rows of ten tokens
  EXPECT_EQ(report.at("trained_tokens"), 54);  // nothing predicts a row's first token
  EXPECT_EQ(report.at("loss_first"), metrics.front().at("loss"));
  EXPECT_EQ(report.at("loss_last"), metrics.back().at("loss"));
  EXPECT_EQ(report.at("eval_loss_after"), metrics.back().at("eval_loss"));
  EXPECT_NE(report.at("eval_loss_after"), report.at("eval_loss_before"));
}

TEST_F(CmdTrain, TheLogSaysWhatIsAdaptedAndWhatIsFrozen) {  // TC10, TC25
  run_train({.recipe = files_.recipe(kSmallLora)});
  const std::string log = read_text(files_.run("log.txt"));
  for (const char* line : {"LoRA on 35 matrices", "  model.layers.*.self_attn.o_a_proj (5)\n",
                           "  model.layers.*.mlp.experts.gate_up_proj (5)\n",
                           "  model.layers.*.mlp.experts.down_proj (5)\n", "lightning indexer: frozen"}) {
    EXPECT_NE(log.find(line), std::string::npos) << line << "\n" << log;
  }
  for (const char* absent : {"mlp.gate ", "indexer.q", "shared_experts"}) {
    EXPECT_EQ(log.find(absent), std::string::npos) << absent << "\n" << log;
  }
}

TEST_F(CmdTrain, AFullRunLeavesAModelThatLoads) {
  ASSERT_EQ(run_train({.recipe = files_.recipe("")}), 0);
  EXPECT_FALSE(fs::exists(files_.run("adapter")));
  EXPECT_EQ(files_.report().at("mode"), "full");
  const auto different = different_tensors(files_ / "model", files_.run("model"));
  EXPECT_TRUE(different.contains("model.embed_tokens.weight"));
  EXPECT_TRUE(different.contains("model.layers.1.mlp.experts.down_proj"));
  for (const std::string& name : different) {
    EXPECT_FALSE(name.starts_with("mtp.") || name.find(".indexer.") != std::string::npos) << name << " has no loss";
  }
}

TEST_F(CmdTrain, TheIndexersOwnLossTrainsIt) {
  run_train({.recipe = files_.recipe(""), .overrides = {"model.indexer=kl"}});
  EXPECT_NE(read_text(files_.run("log.txt")).find("lightning indexer: trained by its own KL loss"), std::string::npos);
  EXPECT_TRUE(files_.metrics().back().contains("indexer_loss"));
  const auto different = different_tensors(files_ / "model", files_.run("model"));
  EXPECT_TRUE(std::ranges::any_of(different, [](const auto& name) { return name.find(".indexer.") != name.npos; }));
}

TEST(CmdTrainOfATokenizer, AFullRunCopiesTheTokenizerToItsModel) {
  const TrainingFiles files(300);
  run_train({.recipe = files.recipe(""), .overrides = {"train.steps=1"}});
  EXPECT_EQ(read_text(files.run("model/tokenizer.json")), read_text(files / "tokenizer/tokenizer.json"));
}

TEST_F(CmdTrain, AFinishedRunIsLeftAsItIs) {
  for (const std::string& sections : {kSmallLora, std::string()}) {
    fs::remove_all(files_ / "runs");
    const TrainArgs args{.recipe = files_.recipe(sections)};
    run_train(args);
    auto before = files_.contents();
    EXPECT_EQ(run_train(args), 0);
    auto after = files_.contents();
    const std::string log = files_.run("log.txt");
    EXPECT_NE(after[log].find("nothing to do: all 3 steps are done"), std::string::npos) << after[log];
    before.erase(log);
    after.erase(log);
    EXPECT_TRUE(before == after);
  }
}

TEST_F(CmdTrain, FinishesWhatACrashAfterTheLastCheckpointLeft) {
  const TrainArgs full{.recipe = files_.recipe("")};
  run_train(full);
  const auto before = files_.contents();
  fs::remove_all(files_.run("model"));
  fs::remove(files_.run("report.json"));
  run_train(full);
  const std::string weights = files_.run("model/model.safetensors");
  EXPECT_TRUE(files_.contents().at(weights) == before.at(weights));
  EXPECT_EQ(files_.report().at("last_step"), 3);
  EXPECT_FALSE(files_.report().contains("loss_last"));  // no step of this process has one
}

TEST_F(CmdTrain, GoesOnWhenTheRecipeAsksForMoreSteps) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  EXPECT_EQ(run_train({.recipe = recipe, .overrides = {"train.steps=5"}}), 0);
  const auto metrics = files_.metrics();
  ASSERT_EQ(metrics.size(), 5u);
  for (size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].at("step"), i + 1);
  EXPECT_EQ(files_.report().at("first_step"), 3);
  EXPECT_EQ(read_recipe(files_.run("recipe.yaml")).train.steps, 5);
}

TEST_F(CmdTrain, ARefusedRecipeReplacesNothingOfTheRun) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  auto before = files_.contents();
  for (const char* change : {"seed=9", "train.steps=2"}) {
    const std::string error = error_of<InputError>([&] { run_train({.recipe = recipe, .overrides = {change}}); });
    EXPECT_NE(error.find("step-00000003"), std::string::npos) << error;
  }
  auto after = files_.contents();
  before.erase(files_.run("log.txt"));
  after.erase(files_.run("log.txt"));
  EXPECT_TRUE(before == after);
}

TEST_F(CmdTrain, DryRunPrintsTheRecipeAndWritesNothing) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_train({.recipe = files_.recipe(kSmallLora), .dry_run = true}), 0);
  const std::string yaml = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(recipe_to_yaml(parse_recipe(yaml, "dry run")), yaml);
  EXPECT_EQ(parse_recipe(yaml, "dry run").train.steps, 3);
  EXPECT_FALSE(fs::exists(files_ / "runs"));
}

TEST_F(CmdTrain, ContinuesAnAdapter) {
  run_train({.recipe = files_.recipe(kSmallLora)});
  const double reached = files_.report().at("eval_loss_after");
  fs::rename(files_.run("adapter"), files_ / "start");
  fs::remove_all(files_ / "runs");
  const std::string recipe = files_.recipe("lora: {from: " + (files_ / "start").string() + "}\n");
  ASSERT_EQ(run_train({.recipe = recipe}), 0);
  EXPECT_NEAR(files_.report().at("eval_loss_before"), reached, 1e-9);
  EXPECT_NE(read_text(files_.run("log.txt")).find("LoRA on 35 matrices"), std::string::npos);
  EXPECT_EQ(read_recipe(files_.run("recipe.yaml")).lora->from, files_ / "start");
  const auto config = nlohmann::json::parse(read_text(files_.run("adapter/adapter_config.json")));
  EXPECT_EQ(config.at("r"), 2);
  EXPECT_EQ(config.at("lora_alpha"), 4);
}

TEST_F(CmdTrain, RefusesWrongSettings) {
  expect_refused({"optimizer.lrr=1"}, "did you mean optimizer.lr?");
  expect_refused({"lora.targets=[atention]"}, "did you mean \"attention\"?");
  expect_refused({set_file("model.tokenizer", "tokenizer")}, "ids up to 255, the model's vocabulary has 97");
  expect_refused({"lora.from=absent"}, "absent", "");
  files_.folder().write("file", "kept");
  expect_refused({set_file("output", "file")}, "file/.cache: cannot create the folder for the index");
  EXPECT_EQ(read_text(files_ / "file"), "kept");
}

TEST_F(CmdTrain, RefusesWrongRows) {
  files_.folder().write("large.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 97]}\n");
  expect_refused({set_file("data.train", "large.jsonl")}, "large.jsonl:2: token id 97");
  files_.folder().write("broken.jsonl", "{\"input_ids\": [1, 2]}\n\n{\"input_ids\": [1, 2\n");
  expect_refused({set_file("data.train", "broken.jsonl")}, "broken.jsonl:3: [invalid_json]");
  files_.folder().write("none.jsonl", "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n");
  expect_refused({set_file("data.train", "none.jsonl")}, "no token to train");
  files_.folder().write("text.jsonl", "{\"text\": \"a\"}\n");
  expect_refused({set_file("data.train", "text.jsonl")}, "tokenizer");
}

TEST_F(CmdTrain, RefusesADamagedCheckpoint) {
  const fs::path weights = files_ / "model/model.safetensors";
  const std::string whole = read_text(weights);
  write_text_atomically(weights, whole.substr(0, whole.size() - 100));
  expect_refused({}, "model.safetensors: tensor '");
  write_text_atomically(weights, whole.substr(0, 100));
  expect_refused({}, "model.safetensors: ");
  write_text_atomically(weights, whole);
  change_header(weights, [](auto& header) {
    header["model.norm.renamed"] = header.at("model.norm.weight");
    header.erase("model.norm.weight");
  });
  expect_refused({}, "model.norm.weight");
  write_text_atomically(weights, whole);
  change_header(weights, [](auto& header) { header.at("model.norm.weight").at("shape") = {4, 8}; });
  expect_refused({}, "model.norm.weight");
}

TEST_F(CmdTrain, RefusesALossOfAnMtpLayerThatIsNotThere) {
  auto config = testing::tiny_config_json();
  config["num_nextn_predict_layers"] = 0;
  config["compress_ratios"] = {0, 4, 8, 4, 8};
  files_.folder().write("config.json", config.dump());
  run_init({.config = files_ / "config.json", .out = files_ / "plain"});
  expect_refused({set_file("model.path", "plain"), "model.mtp_weight=0.3"}, "plain has no MTP layer", "");
}

TEST_F(CmdTrain, ASignalLeavesACheckpointFromWhichTheNextStartGoesOn) {
  const std::string recipe = files_.recipe(kSmallLora);
  const auto ready = [&] {
    std::error_code absent;
    return fs::file_size(files_.run("metrics.jsonl"), absent) > 0 && !absent;
  };
  const ProgramResult result =
      testing::interrupt_asterism({"train", recipe, "--set", "train.steps=100000"}, SIGTERM, ready);
  EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
  EXPECT_NE(result.err.find("stopped by a signal after step "), std::string::npos) << result.err;
  const auto report = files_.report();
  EXPECT_EQ(report.at("stopped"), true);
  const int64_t done = report.at("last_step");
  ASSERT_EQ(static_cast<int64_t>(files_.metrics().size()), done);
  EXPECT_TRUE(fs::exists(files_.run("adapter/adapter_model.safetensors")));

  const std::string steps = text("train.steps=", done + 2);
  EXPECT_EQ(run_train({.recipe = recipe, .overrides = {steps}}), 0);
  EXPECT_EQ(files_.report().at("first_step"), done);
  EXPECT_EQ(files_.report().at("stopped"), false);
  const auto metrics = files_.metrics();
  ASSERT_EQ(static_cast<int64_t>(metrics.size()), done + 2);
  for (size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].at("step"), i + 1);
}

}  // namespace
}  // namespace asterism::cli
