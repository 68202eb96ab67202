#include "asterism/checkpoint/peft_config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
using Json = nlohmann::json;

namespace {

// Read below, or without effect on what a finished adapter computes. Every other key has to be switched off.
constexpr std::string_view kHarmlessKeys[] = {
    // read
    "peft_type",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "use_rslora",
    "lora_dropout",
    "bias",
    "init_lora_weights",
    "target_parameters",
    "base_model_name_or_path",
    // which modules are adapted: the tensors say
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    // bookkeeping, settings of training, and parameters of features that have a switch of their own
    "auto_mapping",
    "inference_mode",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
    "ensure_weight_tying",
    "eva_config",
    "runtime_config",
};

// Initialisations that leave the base weights as they are; PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA subtract from them.
constexpr std::string_view kHarmlessInitialisations[] = {"gaussian", "eva", "orthogonal"};

template <typename Range>
bool contains(const Range& range, std::string_view value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

// The patterns of a file: PEFT writes a name for each matrix at most. Longer ones would take long to compile.
constexpr size_t kMaxPatternBytes = 500, kMaxPatterns = 2'000;

std::regex pattern_regex(const std::string& expression) {
  // __polynomial: time that grows with the product of both lengths, where backtracking would take for ever on (a*)*b.
  return std::regex("(.*\\.)?(" + expression + ")", std::regex::ECMAScript | std::regex_constants::__polynomial);
}

/// The value of the first expression that matches.
template <typename Number>
std::optional<Number> first_match(const std::vector<std::pair<std::string, Number>>& pattern, const std::string& path) {
  for (const auto& [expression, number] : pattern) {
    if (std::regex_match(path, pattern_regex(expression))) return number;
  }
  return std::nullopt;
}

template <typename Number>
Json pattern_json(const std::vector<std::pair<std::string, Number>>& pattern) {
  Json json = Json::object();
  for (const auto& [expression, number] : pattern) json[expression] = number;
  return json;
}

// No matrix of a model has more rows; products of a rank and the sizes of a model stay within 63 bits.
constexpr int64_t kMaxRank = 1'000'000;
constexpr const char* kRankRange = "a whole number from 1 to 1000000";

bool is_rank(const Json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 1 && value.get<int64_t>() <= kMaxRank;
}

bool is_off(const Json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::filesystem::path& file)
      : origin_(file.string()), json_(parse_strict_json(read_text(file), origin_)) {
    if (!json_.is_object()) input_error(origin_, ": expected a JSON object, found ", json_.type_name());
  }

  AdapterConfig read() const {
    refuse_other_features();
    AdapterConfig config;
    config.lora.targets.clear();
    const Json& rank = required("r");
    if (!is_rank(rank)) wrong("r", kRankRange);
    config.lora.rank = rank.get<int64_t>();
    const Json& alpha = required("lora_alpha");
    if (!alpha.is_number()) wrong("lora_alpha", "a number");
    config.lora.alpha = alpha.get<double>();
    config.lora.rslora = boolean("use_rslora");
    const Json dropout = json_.value("lora_dropout", Json(0.0));
    if (!dropout.is_number() || !(dropout >= 0.0 && dropout < 1.0)) wrong("lora_dropout", "0 <= p < 1");
    config.lora.dropout = dropout.get<double>();
    if (const Json base = value("base_model_name_or_path"); base.is_string()) config.base_model = base;
    if (const Json version = value("peft_version"); version.is_string()) config.peft_version = version;
    config.target_parameters = names("target_parameters");
    config.lora.modules_to_save = names("modules_to_save");
    read_pattern("rank_pattern", config.rank_pattern);
    read_pattern("alpha_pattern", config.alpha_pattern);
    return config;
  }

 private:
  void refuse_other_features() const {
    if (value("peft_type") != "LORA") wrong("peft_type", "\"LORA\"");
    if (!value("bias").is_null() && value("bias") != "none") wrong("bias", "\"none\"");
    const Json init = value("init_lora_weights");
    if (init.is_string() && !contains(kHarmlessInitialisations, init.get<std::string>())) {
      wrong("init_lora_weights",
            "an initialisation that leaves the base weights alone (save the adapter with PEFT's conversion to plain "
            "LoRA)");
    }
    for (const auto& [key, setting] : json_.items()) {
      if (contains(kHarmlessKeys, key) || is_off(setting)) continue;
      input_error(origin_, ": ", shortened(key), ": this feature of PEFT cannot be read, expected it to be off, found ",
                  shortened(setting.dump()));
    }
  }

  std::vector<std::string> names(const char* key) const {
    const Json list = value(key);
    if (list.is_null()) return {};
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); })) {
      wrong(key, "a list of names");
    }
    return list.get<std::vector<std::string>>();
  }

  template <typename Number>
  void read_pattern(const char* key, std::vector<std::pair<std::string, Number>>& pattern) const {
    constexpr bool kWhole = std::is_integral_v<Number>;
    const Json map = value(key);
    if (map.is_null()) return;
    const std::string expected = text("expressions with ", kWhole ? kRankRange : "numbers");
    if (!map.is_object()) wrong(key, expected);
    if (map.size() > kMaxPatterns) wrong(key, text("at most ", kMaxPatterns, " expressions"));
    for (auto entry = map.begin(); entry != map.end(); ++entry) {
      const std::string& expression = entry.key();
      const Json& number = entry.value();
      if (!number.is_number() || (kWhole && !is_rank(number))) wrong(key, expected);
      if (expression.size() > kMaxPatternBytes) wrong(key, text("expressions of at most ", kMaxPatternBytes, " bytes"));
      try {
        pattern_regex(expression);
      } catch (const std::regex_error& error) {
        input_error(origin_, ": ", key, ": \"", shortened(expression), "\" is no regular expression (", error.what(),
                    ")");
      }
      pattern.emplace_back(expression, number.get<Number>());
    }
  }

  Json value(const char* key) const { return json_.value(key, Json()); }

  const Json& required(const char* key) const {
    if (!json_.contains(key)) input_error(origin_, ": ", key, ": expected a value, found none");
    return json_[key];
  }

  bool boolean(const char* key) const {
    const Json setting = value(key);
    if (!setting.is_null() && !setting.is_boolean()) wrong(key, "true or false");
    return setting.is_boolean() && setting.get<bool>();
  }

  [[noreturn]] void wrong(const char* key, const std::string& expected) const {
    input_error(origin_, ": ", key, ": expected ", expected, ", found ", shortened(value(key).dump()));
  }

  const std::string origin_;
  const Json json_;
};

}  // namespace

bool AdapterConfig::targets_parameter(const std::string& path) const {
  return std::any_of(target_parameters.begin(), target_parameters.end(),
                     [&](const std::string& target) { return path == target || path.ends_with("." + target); });
}

bool AdapterConfig::has_current_layout() const {
  int major = 0, minor = 0;
  return std::sscanf(peft_version.c_str(), "%9d.%9d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(0, 21);
}

model::LoraConfig AdapterConfig::lora_of(const std::string& path) const {
  model::LoraConfig one = lora;
  one.rank = first_match(rank_pattern, path).value_or(lora.rank);
  one.alpha = first_match(alpha_pattern, path).value_or(lora.alpha);
  return one;
}

std::string pattern_path(const std::string& matrix) {
  const std::string path = model::projection_path(matrix);
  return model::adapted_as_parameter(path) ? matrix : path;
}

AdapterConfig read_adapter_config(const std::filesystem::path& file) {
  return ConfigReader(file).read();
}

std::string adapter_config_text(const AdapterConfig& config) {
  Json json = {
      {"peft_type", "LORA"},
      // The version whose layout this is: expert matrices lie differently in others.
      {"peft_version", "0.21.2"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", nullptr},
      {"inference_mode", true},
      {"r", config.lora.rank},
      {"lora_alpha", config.lora.alpha},
      {"use_rslora", config.lora.rslora},
      {"lora_dropout", config.target_parameters.empty() ? config.lora.dropout : 0.0},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true},
      {"modules_to_save", nullptr},
      {"rank_pattern", pattern_json(config.rank_pattern)},
      {"alpha_pattern", pattern_json(config.alpha_pattern)},
      {"use_dora", false},
      {"target_parameters", config.target_parameters},
  };
  // An empty list, not null: null makes PEFT choose modules of its own.
  json["target_modules"] = config.target_modules.empty() ? Json::array() : Json(config.target_modules);
  if (!config.lora.modules_to_save.empty()) json["modules_to_save"] = config.lora.modules_to_save;
  if (config.base_model) json["base_model_name_or_path"] = *config.base_model;
  if (config.target_parameters.empty()) json["target_parameters"] = nullptr;
  if (config.lora.alpha == std::floor(config.lora.alpha)) json["lora_alpha"] = static_cast<int64_t>(config.lora.alpha);
  return json.dump(2) + "\n";
}

}  // namespace asterism::checkpoint
