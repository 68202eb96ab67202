// Folders that others wrote: checkpoints in shards, adapters, train states, conversions.
#include <gtest/gtest.h>

#include <fstream>

#include "asterism/checkpoint/conversion_record.h"
#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/fingerprint.h"
#include "asterism/checkpoint/manifest.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"
#include "tests/fuzz/lying_files.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace asterism::checkpoint;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;
using Json = nlohmann::ordered_json;

const char* const kIndex = "model.safetensors.index.json";

Json tree_of(const std::string& text) {
  const Json tree = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return tree.is_discarded() ? Json(text) : tree;
}

/// A new folder whose files are links to those of another one, as in the cache of a download.
class LinkedFolder {
 public:
  explicit LinkedFolder(const fs::path& original) {
    for (const auto& entry : fs::recursive_directory_iterator(original)) {
      const fs::path target = folder_.path() / entry.path().lexically_relative(original);
      if (entry.is_directory()) {
        fs::create_directory(target);
      } else {
        fs::create_symlink(entry.path(), target);
        files_.push_back(target);
      }
    }
    std::sort(files_.begin(), files_.end());
  }

  const fs::path& path() const { return folder_.path(); }
  const std::vector<fs::path>& files() const { return files_; }
  /// Puts a file of this content in the place of the link.
  void write(const std::string& name, const std::string& content) const {
    std::error_code none;
    fs::remove_all(path() / name, none);
    folder_.write(name, content);
  }
  std::string read(const std::string& name) const { return read_text(path() / name); }
  /// The tree of a file; its text where an earlier lie has left none.
  Json json(const std::string& name) const { return tree_of(read(name)); }

 private:
  TemporaryFolder folder_;
  std::vector<fs::path> files_;
};

/// Whether each file is one still, so that another lie about it is possible.
bool all_readable(const std::vector<fs::path>& files) {
  return std::ranges::all_of(files, [](const fs::path& file) {
    std::error_code unknown;
    return fs::is_regular_file(file, unknown);
  });
}

/// The header of a file changed as text, with a length that fits again, mostly.
std::string with_lying_header(Dice& dice, const std::string& bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return bytes;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length) return bytes;
  const std::string header = lying_json(dice, tree_of(bytes.substr(8, length)));
  const uint64_t old_length = length;
  if (dice.chance(0.9)) length = header.size();
  const std::string rest = bytes.substr(8 + old_length);
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + rest;
}

/// A small checkpoint as it is released: FP4 experts, FP8 matrices, hash tables, an MTP layer, three shards.
class ReleasedFolder {
 public:
  ReleasedFolder() {
    write_conversion_source(folder_ / "model", 1,
                            {.spelling = Spelling::kNative,
                             .max_shard_bytes = 300'000,
                             .storage = {.experts = Form::fp4(), .dense = Form::fp8(), .norms = at::kBFloat16}});
  }
  fs::path path() const { return folder_ / "model"; }

 private:
  TemporaryFolder folder_;
};

void lie_about_index(Dice& dice, const LinkedFolder& folder) {
  Json index = folder.json(kIndex);
  if (!index.is_object() || !index["weight_map"].is_object() || index["weight_map"].empty()) return;
  Json& map = index["weight_map"];
  auto entry = map.begin();
  std::advance(entry, static_cast<int64_t>(dice.below(map.size())));
  const Json other = std::prev(map.end()).value();
  const char* const paths[] = {
      "../model.safetensors", "/dev/zero", "a/b", "", ".", "..", "model-00009-of-00009.safetensors"};
  switch (dice.below(6)) {
    case 0:
      map.erase(entry);
      break;
    case 1:
      map["ghost.weight"] = other;
      break;
    case 2:
      *entry = other;
      break;
    case 3:
      *entry = dice.pick(paths);
      break;
    case 4:
      *entry = std::string(dice.below(10'000), 'x');
      break;
    default:
      return folder.write(kIndex, lying_json(dice, index));
  }
  folder.write(kIndex, index.dump());
}

void lie_about_checkpoint(Dice& dice, const LinkedFolder& folder) {
  const fs::path& file = dice.pick(folder.files());
  const std::string name = file.filename();
  switch (dice.below(6)) {
    case 0:
      return replace_file(dice, file);
    case 1:
      return lie_about_index(dice, folder);
    case 2:
    case 3:
      return folder.write("config.json", lying_json(dice, folder.json("config.json")));
    case 4: {
      const fs::path& other = dice.pick(folder.files());
      const std::string content = read_text(other);
      return folder.write(name, content);
    }
    default:
      if (name.ends_with(".safetensors")) folder.write(name, with_lying_header(dice, folder.read(name)));
  }
}

TEST(Fuzz, CheckpointFolders) {
  const ReleasedFolder released;
  int accepted = 0, refused = 0;
  for_each_input("checkpoint folders", 150, [&](Dice& dice) {
    const LinkedFolder folder(released.path());
    const bool honest = dice.chance(0.05);
    for (uint64_t lies = honest ? 0 : 1 + dice.below(2); lies > 0; --lies) {
      if (all_readable(folder.files())) lie_about_checkpoint(dice, folder);
    }
    const bool packed = dice.chance(0.5);
    const bool read = is_accepted(folder.path(), [&] {
      const model::Config config = model::read_config(folder.path() / "config.json");
      const LoadedWeights loaded = read_weights(folder.path(), config, {.packed = packed});
      expect_inside(Source::open(folder.path()));
      base_fingerprint(folder.path());
      model::for_each_weight(config, loaded.weights, [](const model::TensorSpec& spec, const ops::Matrix& weight) {
        ASSERT_EQ(weight.sizes(), at::IntArrayRef(spec.shape)) << spec.name;
      });
    });
    EXPECT_TRUE(read || !honest);
    ++(read ? accepted : refused);
  });
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Fuzz, Conversions) {
  process_log().set_quiet(true);
  const ReleasedFolder released;
  const ConvertRequest request = {.spelling = Spelling::kModule, .max_shard_bytes = 500'000};
  const TemporaryFolder done;
  convert_checkpoint(released.path(), done / "out", request, 2);
  for_each_input("conversions", 150, [&](Dice& dice) {
    const TemporaryFolder folder;
    const bool begun = dice.chance(0.5);
    const fs::path work = begun ? folder / "out.incomplete" : folder / "out";
    fs::copy(done / "out", work);
    Json record = Json::parse(read_text(work / "conversion.json"));
    if (begun) {
      std::string journal = Json({{"request", record["request"]}}).dump() + "\n";
      for (Json& file : record["files"]) {
        if (dice.chance(0.5)) lie_in(dice, file);
        journal += file.dump() + "\n";
      }
      if (dice.chance(0.3)) journal = mutated(dice, journal, {});
      std::ofstream(work / kConversionJournal) << journal;
      if (dice.chance(0.8)) fs::remove(work / "conversion.json");
    }
    if (fs::exists(work / "conversion.json") && dice.chance(0.9)) {
      std::ofstream(work / "conversion.json") << lying_json(dice, record);
    }
    const auto check = [&](const std::function<void()>& action) {
      try {
        return is_accepted(folder.path(), action);
      } catch (const VerificationError&) {
        return false;
      }
    };
    if (check([&] { convert_checkpoint(released.path(), folder / "out", request, 2); })) {
      check([&] { verify_conversion(folder / "out"); });
      check([&] { expect_inside(Source::open(folder / "out")); });
    }
  });
}

TEST(Fuzz, Adapters) {
  const model::Config config = model::read_config(golden("hf/all_paths/config.json"));
  const TemporaryFolder originals;
  fs::create_directories(originals / "peft");
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    fs::copy_file(golden("hf/all_paths/lora") / name, originals.path() / "peft" / name);
  }
  auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const LoadedAdapter adapter = load_adapter(originals / "peft", config, weights);
  write_adapter(originals / "single", config, weights, adapter.lora, "", false, AdapterLayout::kPerExpert);
  int accepted = 0, refused = 0;
  for_each_input("adapters", 400, [&](Dice& dice) {
    const LinkedFolder folder(originals / (dice.chance(0.5) ? "peft" : "single"));
    const char* const tensors = "adapter_model.safetensors";
    Json settings = folder.json("adapter_config.json");
    switch (dice.below(6)) {
      case 0:
        replace_file(dice, dice.pick(folder.files()));
        break;
      case 1:
        folder.write(tensors, with_lying_header(dice, folder.read(tensors)));
        break;
      case 2: {  // expressions that backtrack for ever, or are none
        const char* const expressions[] = {
            "(a*)*b", "(.*)*x(.*)*y(.*)*z", "(", "[", "a{1000}{1000}", "(.|..)*(.|..)*!", "(a)\\1", "q_proj", "", "*",
            "(?=a)",  "layers\\.0\\..*"};
        settings[dice.chance(0.5) ? "rank_pattern" : "alpha_pattern"] =
            Json{{dice.pick(expressions), dice.between(0, 3)}};
        folder.write("adapter_config.json", settings.dump());
        break;
      }
      case 3:
        settings[dice.pick(std::vector<std::string>{"target_parameters", "modules_to_save"})] = {
            dice.pick(std::vector<std::string>{"lm_head", "mlp.gate", "", "mlp.experts.down_proj", "self_attn", "*"})};
        folder.write("adapter_config.json", settings.dump());
        break;
      default:
        folder.write("adapter_config.json", lying_json(dice, settings));
    }
    ++(is_accepted(folder.path(), [&] { read_adapter(folder.path(), config); }) ? accepted : refused);
  });
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Fuzz, TrainStates) {
  const TemporaryFolder original;
  TrainState state;
  state.info = {{"step", 3}, {"recipe", {{"lora", {{"rank", 2}}}}}, {"updates", {1, 2, 3}}};
  state.tensors = {{"param.a", at::ones({2, 3})}, {"exp_avg.a", at::zeros({2, 3})}, {"buffer.b", at::arange(4)}};
  StateFolder(original.path()).save(3, state, 2);
  int accepted = 0, refused = 0;
  for_each_input("train states", 600, [&](Dice& dice) {
    const LinkedFolder folder(original.path());
    const std::string step = "step-00000003/";
    switch (dice.below(5)) {
      case 0:
        replace_file(dice, dice.pick(folder.files()));
        break;
      case 1:
        folder.write(step + "manifest.json", lying_json(dice, folder.json(step + "manifest.json")));
        break;
      case 2:
        folder.write(step + "state.json", lying_json(dice, folder.json(step + "state.json")));
        break;
      case 3:
        folder.write(step + "state.safetensors", with_lying_header(dice, folder.read(step + "state.safetensors")));
        break;
      default: {  // folders that only look like steps
        const char* const names[] = {
            "step-00000009", "step-999999999999999999", "step-9999999999999999999", "step-0000000x",
            "step-",         "latest.tmp-1-1"};
        const fs::path odd = folder.path() / dice.pick(names);
        dice.chance(0.5) ? void(fs::create_directory(odd)) : fs::create_symlink(odd, odd);
        folder.write("latest", std::string(dice.below(30), 'x'));
      }
    }
    // A manifest that fits the lies: they reach what reads them.
    if (all_readable(folder.files()) && dice.chance(0.6)) {
      fs::remove(folder.path() / (step + "manifest.json"));  // or it would name itself
      write_manifest(folder.path() / step);
    }
    const StateFolder states(folder.path());
    const bool read = is_accepted(folder.path(), [&] {
      const TrainState again = read_train_state(states.path_of(3));
      expect_inside(Source::of_file(states.path_of(3) / "state.safetensors"));
      EXPECT_TRUE(again.info.is_object());
    });
    is_accepted(folder.path(), [&] { states.tidy(); });
    ++(read ? accepted : refused);
  });
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace asterism::fuzz
