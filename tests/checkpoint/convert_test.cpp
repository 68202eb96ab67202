#include "asterism/checkpoint/convert.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "asterism/checkpoint/conversion_record.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::conversion_config_json;
using asterism::testing::error_of;
using asterism::testing::kBf16;
using asterism::testing::kFp32;
using asterism::testing::same_tensors;
using asterism::testing::stored_tensors_of;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;
using Values = std::map<std::string, at::Tensor>;

/// The storage of the release: experts FP4, dense matrices FP8, the rest BF16.
WriteOptions released(Spelling spelling = Spelling::kNative) {
  return {.spelling = spelling,
          .max_shard_bytes = 400'000,
          .storage = {.experts = Form::fp4(), .dense = Form::fp8(), .norms = at::kBFloat16}};
}

/// All values of a checkpoint in fp32, by canonical name.
Values values_of(const fs::path& folder) {
  const auto config = model::read_config(folder / "config.json");
  auto weights = read_weights(folder, config, {.matrix_dtype = at::kFloat}).weights;
  Values values;
  model::for_each_tensor(config, weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { values[spec.name] = tensor; });
  return values;
}

bool same_values(const Values& a, const Values& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& entry) {
           return b.contains(entry.first) && at::equal(entry.second, b.at(entry.first));
         });
}

ConvertReport convert(const fs::path& from, const fs::path& to, Spelling spelling, const Storage& storage = {}) {
  return convert_checkpoint(from, to, {.spelling = spelling, .storage = storage, .max_shard_bytes = 500'000}, 3);
}

class WithMtpLayers : public ::testing::TestWithParam<int64_t> {};

TEST_P(WithMtpLayers, ThereAndBackRestoresNamesTypesAndBytes) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", GetParam(), released());
  convert(folder / "native", folder / "hf", Spelling::kModule);
  const auto report = convert(folder / "hf", folder / "again", Spelling::kNative);
  for (const ConvertedClass& entry : report.classes) EXPECT_EQ(entry.loss.changed, 0) << entry.from;
  const auto before = stored_tensors_of(folder / "native");
  EXPECT_TRUE(same_tensors(stored_tensors_of(folder / "again"), before));
  EXPECT_EQ(before.at("layers.0.ffn.gate.tid2eid").scalar_type(), at::kLong);
  EXPECT_FALSE(before.contains("layers.0.ffn.gate.bias")) << "a hash layer has no bias";
  EXPECT_EQ(std::ranges::count_if(before, [](const auto& entry) { return entry.first.starts_with("mtp."); }) > 0,
            GetParam() > 0);
  const auto config = model::read_config(folder / "again" / "config.json");
  EXPECT_EQ(config.num_mtp_layers, GetParam());
  EXPECT_EQ(config.raw["transformers_version"], "5.23.0");
  EXPECT_EQ(config.raw["compress_ratios"], conversion_config_json(GetParam())["compress_ratios"]);
}

TEST_P(WithMtpLayers, ThroughBf16TheValuesComeBack) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", GetParam(), released());
  const Values before = values_of(folder / "native");
  const auto report = convert(folder / "native", folder / "hf", Spelling::kModule, {.experts = kBf16, .dense = kBf16});
  for (const ConvertedClass& entry : report.classes) EXPECT_EQ(entry.loss.changed, 0) << entry.from;
  EXPECT_TRUE(same_values(values_of(folder / "hf"), before));
  convert(folder / "hf", folder / "again", Spelling::kNative, {.experts = Form::fp4(), .dense = Form::fp8()});
  EXPECT_TRUE(same_values(values_of(folder / "again"), before));
  const auto first = stored_tensors_of(folder / "native"), second = stored_tensors_of(folder / "again");
  for (const auto& [name, tensor] : first) {
    ASSERT_TRUE(second.contains(name)) << name;
    EXPECT_EQ(second.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(second.at(name).sizes(), tensor.sizes()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Convert, WithMtpLayers, ::testing::Values(0, 1, 2));

/// Converts and compares what is reported with what loading both shows.
void check_combination(const TemporaryFolder& folder, const std::string& name, const Values& before, Spelling spelling,
                       const Storage& storage) {
  const fs::path to = folder / "to";
  const auto report = convert(folder / name, to, spelling, storage);
  const Values after = values_of(to);
  ASSERT_EQ(after.size(), before.size());
  std::map<TensorClass, int64_t> changed, reported;
  for (const auto& spec : model::tensor_specs(model::read_config(to / "config.json"))) {
    const at::Tensor &x = before.at(spec.name), &y = after.at(spec.name);
    changed[tensor_class(spec)] += x.ne(y).sum().item<int64_t>();
  }
  for (const ConvertedClass& entry : report.classes) reported[entry.type] += entry.loss.changed;
  EXPECT_EQ(reported, changed);
  const auto config = nlohmann::json::parse(read_text(to / "config.json"));
  const Source source = Source::open(to);
  const auto names = source.names();
  const bool coded = std::ranges::any_of(names, [&](const std::string& tensor) {
    return source.info(tensor).dtype == at::kFloat8_e4m3fn || source.info(tensor).dtype == at::kChar;
  });
  EXPECT_EQ(config.contains("quantization_config"), coded);
  EXPECT_EQ(config.contains("expert_dtype"), coded);
  fs::remove_all(to);
}

TEST(Convert, EveryCombinationLosesWhatItReports) {
  const TemporaryFolder folder;
  const std::pair<const char*, WriteOptions> sources[] = {
      {"instruct", released()},
      {"base",
       {.spelling = Spelling::kNative, .storage = {.experts = Form::fp8(at::kFloat), .dense = Form::fp8(at::kFloat)}}},
      {"saved", {.storage = {.experts = kBf16, .dense = kBf16}}},
      {"modules", {.spelling = Spelling::kModule}},
  };
  const std::optional<Form> experts[] = {std::nullopt, Form::fp4(), Form::fp8(), kBf16, kFp32};
  const std::optional<Form> dense[] = {std::nullopt, Form::fp8(), Form::fp8(at::kFloat), kBf16, kFp32};
  const bool all = std::getenv("ASTERISM_LONG") != nullptr;
  int number = 0;
  for (const auto& [name, options] : sources) {
    write_conversion_source(folder / name, 1, options);
    const Values before = values_of(folder / name);
    for (const Spelling spelling : {Spelling::kModule, Spelling::kNative}) {
      for (const auto& expert_form : experts) {
        for (const auto& dense_form : dense) {
          if (!all && number++ % 7 != 0) continue;  // every source, layout and form comes up
          SCOPED_TRACE(text(name, spelling == Spelling::kNative ? " native " : " hf ",
                            expert_form ? expert_form->text() : "-", " ", dense_form ? dense_form->text() : "-"));
          check_combination(folder, name, before, spelling, {.experts = expert_form, .dense = dense_form});
        }
      }
    }
  }
}

TEST(Convert, Fp4BecomesFp8WithoutLoss) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  const auto report = convert(folder / "native", folder / "fp8", Spelling::kNative, {.experts = Form::fp8()});
  for (const ConvertedClass& entry : report.classes) EXPECT_EQ(entry.loss.changed, 0) << entry.from;
  EXPECT_TRUE(same_values(values_of(folder / "fp8"), values_of(folder / "native")));
}

TEST(Convert, AnInterruptedConversionIsContinuedToTheSameBytes) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  convert(folder / "native", folder / "whole", Spelling::kModule);
  // Files 2 and 3 are missing, the journal does not know them, and a begun file lies about.
  const fs::path begun = folder / "out.incomplete";
  fs::copy(folder / "whole", begun);
  const auto record = nlohmann::ordered_json::parse(read_text(begun / "conversion.json"));
  std::string journal = nlohmann::ordered_json({{"request", record["request"]}}).dump() + "\n";
  for (const auto& file : record["files"]) {
    const std::string name = file["file"];
    if (name.starts_with("model-00002") || name.starts_with("model-00003")) {
      fs::rename(begun / name, begun / (name + ".part"));
    } else {
      journal += file.dump() + "\n";
    }
  }
  fs::remove(begun / "conversion.json");
  folder.write("out.incomplete/conversion.jsonl", journal);

  const auto report = convert(folder / "native", folder / "out", Spelling::kModule);
  EXPECT_GT(report.bytes_kept, 0U);
  EXPECT_LT(report.bytes_kept, report.bytes);
  for (const auto& entry : fs::directory_iterator(folder / "whole")) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(read_text(folder / "out" / name) == read_text(entry.path())) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "out"), {}),
            std::distance(fs::directory_iterator(folder / "whole"), {}));
  EXPECT_TRUE(convert(folder / "native", folder / "out", Spelling::kModule).was_complete);
}

TEST(Convert, AnotherRequestIntoTheSameFolderIsRefused) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  convert(folder / "native", folder / "out", Spelling::kModule);
  EXPECT_THROW(convert(folder / "native", folder / "out", Spelling::kNative), InputError);
  EXPECT_THROW(convert(folder / "native", folder / "out", Spelling::kModule, {.dense = kBf16}), InputError);
}

TEST(Convert, ACheckpointThatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, {.spelling = Spelling::kNative});
  auto tensors = stored_tensors_of(folder / "native");
  tensors["layers.0.attn.wq-a.weight"] = tensors["layers.0.attn.wq_a.weight"];
  tensors.erase("layers.0.attn.wq_a.weight");
  tensors["layers.0.something"] = at::ones({1});
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  write_safetensors(folder / "native" / "model.safetensors", list);
  const std::string message =
      error_of<InputError>([&] { convert(folder / "native", folder / "out", Spelling::kModule); });
  for (const char* part : {"model.layers.0.self_attn.q_a_proj.weight", "layers.0.attn.wq-a.weight",
                           "layers.0.something", "the nearest name is layers.0.attn.wq_a.weight"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"native"}));
}

TEST(Convert, ValuesThatTheFormCannotHoldEndTheWorkWithTheirName) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, {.spelling = Spelling::kNative});
  auto tensors = stored_tensors_of(folder / "native");
  tensors["layers.1.ffn.experts.2.w2.weight"][3][4] = std::numeric_limits<float>::infinity();
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  write_safetensors(folder / "native" / "model.safetensors", list);
  const std::string message = error_of<RunError>(
      [&] { convert(folder / "native", folder / "out", Spelling::kModule, {.experts = Form::fp4()}); });
  EXPECT_NE(message.find("tensor 'layers.1.ffn.experts.2.w2.weight' holds NaN or an infinity"), std::string::npos)
      << message;
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_THROW(Source::open(folder / "out.incomplete"), InputError);
}

// A source of terabytes, all of it a hole in the file.
TEST(Convert, TooLittleSpaceIsFoundBeforeTheWork) {
  const TemporaryFolder folder;
  auto json = conversion_config_json(0);
  json["vocab_size"] = 1'000'000'000;
  json["hidden_size"] = 640;
  fs::create_directory(folder / "huge");
  folder.write("huge/config.json", json.dump());
  std::vector<PlannedTensor> planned;
  uint64_t bytes = 0;
  for (const auto& spec : model::tensor_specs(model::parse_config(json, "huge"))) {
    PlannedTensor tensor{spec.name, spec.role == model::TensorRole::kTable ? at::kLong : at::kFloat, spec.shape};
    tensor.bytes = c10::elementSize(tensor.dtype) * static_cast<uint64_t>(c10::multiply_integers(spec.shape));
    bytes += tensor.bytes;
    planned.push_back(tensor);
  }
  const std::string header = plan_safetensors(planned);
  fs::resize_file(folder.write("huge/model.safetensors", header), header.size() + bytes);
  const std::string message =
      error_of<InputError>([&] { convert(folder / "huge", folder / "out", Spelling::kNative, {.dense = kBf16}); });
  EXPECT_NE(message.find("MB free; make space"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Convert, AFolderThatCannotBeMadeIsAnError) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  folder.write("file", "");
  EXPECT_THROW(convert(folder / "native", folder / "file" / "out", Spelling::kModule), RunError);
}

TEST(Convert, VerifyFindsOneFlippedBit) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  const auto report = convert(folder / "native", folder / "out", Spelling::kModule);
  EXPECT_EQ(verify_conversion(folder / "out"), report.bytes);
  const std::string name = "model-00002-of-0000";
  fs::path file;
  for (const auto& entry : fs::directory_iterator(folder / "out")) {
    if (entry.path().filename().string().starts_with(name)) file = entry.path();
  }
  std::string content = read_text(file);
  content[content.size() - 100] ^= 1;
  std::ofstream(file, std::ios::binary) << content;
  const std::string message = error_of<VerificationError>([&] { verify_conversion(folder / "out"); });
  EXPECT_NE(message.find(file.filename().string() + ": expected "), std::string::npos) << message;
  EXPECT_EQ(message.find("model-00001"), std::string::npos) << message;
  EXPECT_THROW(verify_conversion(folder / "native"), InputError);
}

TEST(Convert, TheTokenizerComesAlong) {
  const TemporaryFolder folder;
  write_conversion_source(folder / "native", 0, released());
  folder.write("native/tokenizer.json", "{}");
  folder.write("native/notes.txt", "mine");
  convert(folder / "native", folder / "out", Spelling::kModule);
  EXPECT_EQ(read_text(folder / "out" / "tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(folder / "out" / "notes.txt"));
}

}  // namespace
}  // namespace asterism::checkpoint
