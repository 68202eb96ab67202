#include "asterism/cli/recipe_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "asterism/cli/numbers.h"
#include "asterism/core/error.h"

namespace asterism::cli {

namespace {

using train::Recipe;

/// Where a key's value lives in the recipe.
template <typename T>
using Field = T& (*)(Recipe&);

/// The LoRA section, created with its defaults by the first key that names it.
train::LoraSection& lora(Recipe& recipe) {
  if (!recipe.lora) recipe.lora.emplace();
  return *recipe.lora;
}

const std::string* scalar_of(const RecipeValue& value) {
  return value.kind == RecipeValue::Kind::kScalar ? &value.items.front() : nullptr;
}

// ---- ranges of numbers

struct Range {
  double low, high;
  bool open_low = false, open_high = false;  // the bound itself is not allowed

  bool contains(double value) const {
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
  }
  std::string words() const {
    const std::string above = text(open_low ? "above " : "at least ", number_text(low));
    if (std::isinf(high)) return above;
    return text(above, open_high ? " and below " : " and at most ", number_text(high));
  }
};

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr Range kPositive{0.0, kUnbounded, true};
constexpr Range kNotNegative{0.0, kUnbounded};
constexpr Range kShare{0.0, 1.0};
constexpr Range kShareBelowOne{0.0, 1.0, false, true};

// ---- kinds of keys

template <typename T>
std::function<RecipeValue(const Recipe&)> getter(Field<T> field, std::string (*print)(const T&)) {
  // The field functions hand out references to write to; reading from a copy keeps one function per key.
  return [field, print](const Recipe& recipe) {
    Recipe copy = recipe;
    return RecipeValue::scalar(print(field(copy)));
  };
}

RecipeKey whole(std::string path, int64_t least, Field<int64_t> field) {
  RecipeKey key{.path = std::move(path), .expected = text("a whole number, at least ", least)};
  key.set = [least, field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    const auto number = item ? parse_whole<int64_t>(*item) : std::nullopt;
    if (!number || *number < least) return false;
    field(recipe) = *number;
    return true;
  };
  key.get = getter<int64_t>(field, [](const int64_t& number) { return std::to_string(number); });
  return key;
}

/// A number of ranks, or 0 for "auto".
RecipeKey ranks_or_auto(std::string path, Field<int64_t> field) {
  RecipeKey key{.path = std::move(path), .expected = "auto, or a whole number, at least 1"};
  key.set = [field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    if (!item) return false;
    const auto number = *item == "auto" ? std::optional<int64_t>(0) : parse_whole<int64_t>(*item);
    if (!number || *number < 0 || (*number == 0 && *item != "auto")) return false;
    field(recipe) = *number;
    return true;
  };
  key.get = getter<int64_t>(field, [](const int64_t& number) { return number == 0 ? "auto" : std::to_string(number); });
  return key;
}

RecipeKey seed_key(std::string path, Field<uint64_t> field) {
  RecipeKey key{.path = std::move(path), .expected = "a whole number from 0 to 2^64 - 1"};
  key.set = [field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    const auto number = item ? parse_whole<uint64_t>(*item) : std::nullopt;
    if (number) field(recipe) = *number;
    return number.has_value();
  };
  key.get = getter<uint64_t>(field, [](const uint64_t& number) { return std::to_string(number); });
  return key;
}

RecipeKey number(std::string path, Range range, Field<double> field) {
  RecipeKey key{.path = std::move(path), .expected = "a number, " + range.words()};
  key.set = [range, field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    const auto parsed = item ? parse_number(*item) : std::nullopt;
    if (!parsed || !range.contains(*parsed)) return false;
    field(recipe) = *parsed;
    return true;
  };
  key.get = getter<double>(field, [](const double& value) { return number_text(value); });
  return key;
}

RecipeKey truth(std::string path, Field<bool> field) {
  RecipeKey key{.path = std::move(path), .expected = "true or false"};
  key.set = [field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    if (!item || (*item != "true" && *item != "false")) return false;
    field(recipe) = *item == "true";
    return true;
  };
  key.get = getter<bool>(field, [](const bool& value) { return std::string(value ? "true" : "false"); });
  return key;
}

RecipeKey any_text(std::string path, std::string expected, Field<std::string> field,
                   bool (*allowed)(const std::string&) = nullptr) {
  RecipeKey key{.path = std::move(path), .expected = std::move(expected), .is_text = true};
  key.set = [field, allowed](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    if (!item || item->empty() || (allowed != nullptr && !allowed(*item))) return false;
    field(recipe) = *item;
    return true;
  };
  key.get = getter<std::string>(field, [](const std::string& value) { return value; });
  return key;
}

RecipeKey text_list(std::string path, std::string expected, Field<std::vector<std::string>> field) {
  RecipeKey key{.path = std::move(path), .expected = std::move(expected), .is_text = true};
  key.set = [field](const RecipeValue& value, Recipe& recipe) {
    const bool readable = value.kind == RecipeValue::Kind::kScalar || value.kind == RecipeValue::Kind::kList;
    const auto is_empty = [](const std::string& item) { return item.empty(); };
    if (!readable || value.items.empty() || std::ranges::any_of(value.items, is_empty)) return false;
    field(recipe) = value.items;
    return true;
  };
  key.get = [field](const Recipe& recipe) {
    Recipe copy = recipe;
    return RecipeValue::list(field(copy));
  };
  return key;
}

/// The source that an item of data.train names: a path, or a map of path and weight.
std::optional<data::DataSource> source_of(const RecipeValue::Entry& entry) {
  std::string path;
  std::optional<double> weight;
  for (const auto& [name, value] : entry) {
    if ((name.empty() || name == "path") && path.empty() && !value.empty()) {
      path = value;
    } else if (name == "weight" && !weight) {
      weight = parse_number(value);
      if (!weight || !kPositive.contains(*weight)) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return path.empty() ? std::nullopt : std::optional(data::DataSource{path, weight.value_or(1.0)});
}

/// Data files, perhaps with weights.
RecipeKey mixture(std::string path, std::string expected, Field<std::vector<data::DataSource>> field) {
  RecipeKey key{.path = std::move(path), .expected = std::move(expected), .is_text = true};
  key.set = [field](const RecipeValue& value, Recipe& recipe) {
    std::vector<RecipeValue::Entry> entries = value.entries;
    if (value.kind == RecipeValue::Kind::kScalar || value.kind == RecipeValue::Kind::kList) {
      for (const std::string& item : value.items) entries.push_back({{"path", item}});
    }
    std::vector<data::DataSource> sources;
    for (const RecipeValue::Entry& entry : entries) {
      auto source = source_of(entry);
      if (!source) return false;
      sources.push_back(std::move(*source));
    }
    if (sources.empty()) return false;
    field(recipe) = std::move(sources);
    return true;
  };
  key.get = [field](const Recipe& recipe) {
    Recipe copy = recipe;
    const std::vector<data::DataSource>& sources = field(copy);
    RecipeValue plain = RecipeValue::list({}), weighted = RecipeValue::nested({});
    for (const data::DataSource& source : sources) {
      plain.items.push_back(source.path);
      weighted.entries.push_back({{"path", source.path}, {"weight", number_text(source.weight)}});
    }
    const auto is_plain = [](const data::DataSource& source) { return source.weight == 1.0; };
    return std::ranges::all_of(sources, is_plain) ? plain : weighted;
  };
  return key;
}

std::string words_of(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : " | ") + word;
  return joined;
}

/// A text that is one of a few words.
RecipeKey word(std::string path, const std::vector<std::string>& words, Field<std::string> field) {
  RecipeKey key{.path = std::move(path), .expected = words_of(words)};
  key.set = [words, field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    if (!item || std::ranges::find(words, *item) == words.end()) return false;
    field(recipe) = *item;
    return true;
  };
  key.get = getter<std::string>(field, [](const std::string& value) { return value; });
  return key;
}

/// One of a few words, or a whole number from 1 to `most`.
RecipeKey word_or_number(std::string path, const std::vector<std::string>& words, int64_t most,
                         Field<std::string> field) {
  RecipeKey key = word(std::move(path), words, field);
  key.expected += text(", or a whole number from 1 to ", most);
  key.set = [is_word = key.set, most, field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    const auto number = item ? parse_whole<int64_t>(*item) : std::nullopt;
    if (!number) return is_word(value, recipe);
    if (*number < 1 || *number > most) return false;
    field(recipe) = std::to_string(*number);
    return true;
  };
  return key;
}

/// A word for each value of an enumeration.
template <typename Enum>
RecipeKey choice(std::string path, std::vector<std::pair<std::string, Enum>> choices, Field<Enum> field) {
  std::vector<std::string> words;
  for (const auto& [name, value] : choices) words.push_back(name);
  RecipeKey key{.path = std::move(path), .expected = words_of(words)};
  key.set = [choices, field](const RecipeValue& value, Recipe& recipe) {
    const std::string* item = scalar_of(value);
    for (const auto& [name, chosen] : choices) {
      if (!item || *item != name) continue;
      field(recipe) = chosen;
      return true;
    }
    return false;
  };
  key.get = [choices, field](const Recipe& recipe) {
    Recipe copy = recipe;
    const auto same = [&](const auto& candidate) { return candidate.second == field(copy); };
    return RecipeValue::scalar(std::ranges::find_if(choices, same)->first);
  };
  return key;
}

/// AdamW is all there is, so the recipe has no field for it.
RecipeKey optimizer_name() {
  RecipeKey key{.path = "optimizer.name", .expected = "adamw (muon is not there yet)"};
  key.set = [](const RecipeValue& value, Recipe&) { return value == RecipeValue::scalar("adamw"); };
  key.get = [](const Recipe&) { return RecipeValue::scalar("adamw"); };
  return key;
}

RecipeKey betas() {
  RecipeKey key{.path = "optimizer.betas", .expected = "a list of two numbers, each at least 0 and below 1"};
  key.set = [](const RecipeValue& value, Recipe& recipe) {
    if (value.kind != RecipeValue::Kind::kList || value.items.size() != 2) return false;
    const auto first = parse_number(value.items[0]), second = parse_number(value.items[1]);
    if (!first || !second || !kShareBelowOne.contains(*first) || !kShareBelowOne.contains(*second)) return false;
    recipe.optimizer.beta1 = *first;
    recipe.optimizer.beta2 = *second;
    return true;
  };
  key.get = [](const Recipe& recipe) {
    return RecipeValue::list({number_text(recipe.optimizer.beta1), number_text(recipe.optimizer.beta2)});
  };
  return key;
}

/// The name becomes a folder below `output`.
bool is_folder_name(const std::string& name) {
  const auto is_bad = [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  return name != "." && name != ".." && std::ranges::none_of(name, is_bad);
}

RecipeKey required(RecipeKey key) {
  key.required = true;
  return key;
}

std::vector<RecipeKey> run_and_model_keys() {
  using train::Compute, train::IndexerMode, train::Storage;
  const std::string folder = "the path of a folder";
  return {
      required(any_text(
          "name", "a name for the run, without /", [](Recipe & r) -> auto& { return r.name; }, is_folder_name)),
      any_text(
          "output", folder, [](Recipe & r) -> auto& { return r.output; }),
      seed_key(
          "seed", [](Recipe & r) -> auto& { return r.seed; }),
      required(any_text(
          "model.path", folder, [](Recipe & r) -> auto& { return r.model.path; })),
      any_text(
          "model.tokenizer", "the path of a folder or of a tokenizer.json",
          [](Recipe & r) -> auto& { return r.model.tokenizer; }),
      choice<Storage>(
          "model.storage",
          {{"auto", Storage::kAuto},
           {"fp32", Storage::kFp32},
           {"bf16", Storage::kBf16},
           {"fp8", Storage::kFp8},
           {"fp4", Storage::kFp4}},
          [](Recipe & r) -> auto& { return r.model.storage; }),
      choice<Compute>(
          "model.compute", {{"auto", Compute::kAuto}, {"fp32", Compute::kFp32}, {"bf16", Compute::kBf16}},
          [](Recipe & r) -> auto& { return r.model.compute; }),
      choice<IndexerMode>(
          "model.indexer", {{"frozen", IndexerMode::kFrozen}, {"kl", IndexerMode::kKl}},
          [](Recipe & r) -> auto& { return r.model.indexer; }),
      number(
          "model.mtp_weight", kNotNegative, [](Recipe & r) -> auto& { return r.model.mtp_weight; }),
  };
}

std::vector<RecipeKey> data_keys() {
  const std::string files = "a file, folder or pattern, or a list of these";
  return {
      required(mixture(
          "data.train", files + " or of {path, weight} with a weight above 0",
          [](Recipe & r) -> auto& { return r.data.train; })),
      text_list(
          "data.eval", files, [](Recipe & r) -> auto& { return r.data.eval; }),
      word(
          "data.variant", {"auto", "v4-preview", "v4-0731", "v4-flash-vision", "v4.1"},
          [](Recipe & r) -> auto& { return r.data.variant; }),
      word(
          "data.thinking", {"auto", "chat", "thinking"}, [](Recipe & r) -> auto& { return r.data.thinking; }),
      word_or_number(
          "data.reasoning_effort", {"none", "low", "high", "max"}, 100,
          [](Recipe & r) -> auto& { return r.data.reasoning_effort; }),
      truth(
          "data.drop_thinking", [](Recipe & r) -> auto& { return r.data.drop_thinking; }),
      word(
          "data.history", {"auto", "all", "last_turn", "split"}, [](Recipe & r) -> auto& { return r.data.history; }),
      word(
          "data.special_in_content", {"allow", "reject", "as_text"},
          [](Recipe & r) -> auto& { return r.data.special_in_content; }),
      truth(
          "data.reject_unframeable", [](Recipe & r) -> auto& { return r.data.reject_unframeable; }),
      whole(
          "data.sequence_length", 2, [](Recipe & r) -> auto& { return r.data.sequence_length; }),
      truth(
          "data.packing", [](Recipe & r) -> auto& { return r.data.packing; }),
      word(
          "data.overlong", {"error", "drop", "truncate"}, [](Recipe & r) -> auto& { return r.data.overlong; }),
      word(
          "data.bad_rows", {"error", "skip"}, [](Recipe & r) -> auto& { return r.data.bad_rows; }),
      word(
          "data.without_targets", {"skip", "error"}, [](Recipe & r) -> auto& { return r.data.without_targets; }),
      truth(
          "data.shuffle", [](Recipe & r) -> auto& { return r.data.shuffle; }),
      whole(
          "data.shuffle_buffer", 1, [](Recipe & r) -> auto& { return r.data.shuffle_buffer; }),
      whole(
          "data.workers", 0, [](Recipe & r) -> auto& { return r.data.workers; }),
  };
}

std::vector<RecipeKey> lora_and_train_keys() {
  using model::Recompute;
  using train::Determinism;
  return {
      any_text(
          "lora.from", "the path of a folder", [](Recipe & r) -> auto& { return lora(r).from; }),
      whole(
          "lora.rank", 1, [](Recipe & r) -> auto& { return lora(r).config.rank; }),
      number(
          "lora.alpha", kPositive, [](Recipe & r) -> auto& { return lora(r).config.alpha; }),
      truth(
          "lora.rslora", [](Recipe & r) -> auto& { return lora(r).config.rslora; }),
      number(
          "lora.dropout", kShareBelowOne, [](Recipe & r) -> auto& { return lora(r).config.dropout; }),
      text_list(
          "lora.targets", "a list of attention, shared_experts, experts, or names of modules with * for any text",
          [](Recipe & r) -> auto& { return lora(r).config.targets; }),
      text_list(
          "lora.modules_to_save", "a list of modules such as lm_head or mlp.gate",
          [](Recipe & r) -> auto& { return lora(r).config.modules_to_save; }),
      whole(
          "parallel.expert", 1, [](Recipe & r) -> auto& { return r.parallel.expert; }),
      ranks_or_auto(
          "parallel.shard", [](Recipe & r) -> auto& { return r.parallel.shard; }),
      ranks_or_auto(
          "parallel.replicate", [](Recipe & r) -> auto& { return r.parallel.replicate; }),
      whole(
          "train.steps", 1, [](Recipe & r) -> auto& { return r.train.steps; }),
      number(
          "train.epochs", kPositive, [](Recipe & r) -> auto& { return r.train.epochs; }),
      whole(
          "train.batch", 1, [](Recipe & r) -> auto& { return r.train.batch; }),
      whole(
          "train.micro_batch", 1, [](Recipe & r) -> auto& { return r.train.micro_batch; }),
      choice<Recompute>(
          "train.recompute",
          {{"blocks", Recompute::kBlocks}, {"selective", Recompute::kSelective}, {"none", Recompute::kNone}},
          [](Recipe & r) -> auto& { return r.train.recompute; }),
      choice<Determinism>(
          "train.deterministic", {{"fast", Determinism::kFast}, {"strict", Determinism::kStrict}},
          [](Recipe & r) -> auto& { return r.train.deterministic; }),
      number(
          "train.balance_loss", kNotNegative, [](Recipe & r) -> auto& { return r.train.balance_loss; }),
  };
}

std::vector<RecipeKey> optimizer_and_later_keys() {
  using train::Decay;
  return {
      optimizer_name(),
      number(
          "optimizer.lr", kPositive, [](Recipe & r) -> auto& { return r.optimizer.lr; }),
      betas(),
      number(
          "optimizer.eps", kPositive, [](Recipe & r) -> auto& { return r.optimizer.eps; }),
      number(
          "optimizer.weight_decay", kNotNegative, [](Recipe & r) -> auto& { return r.optimizer.weight_decay; }),
      number(
          "optimizer.clip_norm", kNotNegative, [](Recipe & r) -> auto& { return r.optimizer.clip_norm; }),
      whole(
          "schedule.warmup_steps", 0, [](Recipe & r) -> auto& { return r.schedule.warmup_steps; }),
      choice<Decay>(
          "schedule.decay", {{"cosine", Decay::kCosine}, {"linear", Decay::kLinear}, {"constant", Decay::kConstant}},
          [](Recipe & r) -> auto& { return r.schedule.decay; }),
      number(
          "schedule.min_ratio", kShare, [](Recipe & r) -> auto& { return r.schedule.min_ratio; }),
      whole(
          "checkpoint.every", 0, [](Recipe & r) -> auto& { return r.checkpoint.every; }),
      whole(
          "checkpoint.keep", 1, [](Recipe & r) -> auto& { return r.checkpoint.keep; }),
      any_text(
          "checkpoint.resume", "auto, never or the path of a checkpoint folder",
          [](Recipe & r) -> auto& { return r.checkpoint.resume; }),
      whole(
          "eval.every", 0, [](Recipe & r) -> auto& { return r.eval_every; }),
      whole(
          "log.every", 1, [](Recipe & r) -> auto& { return r.log.every; }),
      truth(
          "log.tensorboard", [](Recipe & r) -> auto& { return r.log.tensorboard; }),
  };
}

std::vector<RecipeKey> make_keys() {
  std::vector<RecipeKey> keys;
  for (auto* part : {run_and_model_keys, data_keys, lora_and_train_keys, optimizer_and_later_keys}) {
    std::ranges::move(part(), std::back_inserter(keys));
  }
  return keys;
}

}  // namespace

std::string describe(const RecipeValue& value) {
  switch (value.kind) {
    case RecipeValue::Kind::kScalar:
      return text('"', value.items.front(), '"');
    case RecipeValue::Kind::kNothing:
      return "nothing";
    case RecipeValue::Kind::kMap:
      return "a map";
    case RecipeValue::Kind::kNested:
      return value.entries.empty() ? "a list that holds lists or maps" : "[" + nested_text(value) + "]";
    case RecipeValue::Kind::kList:
      break;
  }
  std::string joined;
  for (const std::string& item : value.items) joined += (joined.empty() ? "" : ", ") + item;
  return "[" + joined + "]";
}

std::string nested_text(const RecipeValue& value, const QuoteItem& quote) {
  std::string joined;
  for (const RecipeValue::Entry& entry : value.entries) {
    std::string item;
    for (const auto& [name, content] : entry) {
      const std::string shown = quote ? quote(name, content) : content;
      item += (item.empty() ? "" : ", ") + (name.empty() ? shown : name + ": " + shown);
    }
    const bool is_map = entry.size() != 1 || !entry.front().first.empty();
    joined += (joined.empty() ? "" : ", ") + (is_map ? "{" + item + "}" : item);
  }
  return joined;
}

std::string RecipeKey::section() const {
  const size_t dot = path.find('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string RecipeKey::name() const {
  const size_t dot = path.find('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

const std::vector<RecipeKey>& recipe_keys() {
  static const std::vector<RecipeKey> keys = make_keys();
  return keys;
}

const RecipeKey* find_key(const std::string& path) {
  const auto found = std::ranges::find(recipe_keys(), path, &RecipeKey::path);
  return found == recipe_keys().end() ? nullptr : &*found;
}

const std::vector<std::string>& recipe_sections() {
  static const std::vector<std::string> sections = [] {
    std::vector<std::string> names;
    for (const RecipeKey& key : recipe_keys()) {
      const std::string section = key.section();
      if (!section.empty() && (names.empty() || names.back() != section)) names.push_back(section);
    }
    return names;
  }();
  return sections;
}

const std::vector<std::string>& keys_of_adapter() {
  static const std::vector<std::string> keys = {"lora.rank", "lora.alpha", "lora.rslora", "lora.targets",
                                                "lora.modules_to_save"};
  return keys;
}

std::optional<RecipeValue> printed_value(const RecipeKey& key, const Recipe& recipe) {
  const bool from_adapter = std::ranges::find(keys_of_adapter(), key.path) != keys_of_adapter().end();
  if (key.section() == "lora" && !recipe.lora) return std::nullopt;
  if (from_adapter && !recipe.lora->from.empty()) return std::nullopt;
  if (key.path == "train.steps" && recipe.train.steps == 0) return std::nullopt;
  if (key.path == "train.epochs" && recipe.train.epochs == 0.0) return std::nullopt;
  RecipeValue value = key.get(recipe);
  const bool empty =
      value.entries.empty() && (value.items.empty() || (value.items.size() == 1 && value.items.front().empty()));
  return empty ? std::nullopt : std::optional(std::move(value));
}

}  // namespace asterism::cli
