#include "asterism/data/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace asterism::data {

namespace {

// The split pattern of GPT-2, which ByteLevel with use_regex stands for.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex read_pattern(const JsonPart& pattern) {
  try {
    if (const auto regex = pattern.find("Regex")) return Regex::compile(regex->as_string());
    if (const auto literal = pattern.find("String")) return Regex::literal(literal->as_string());
  } catch (const InputError& error) {
    pattern.fail(error.what());
  }
  pattern.fail("expected {\"Regex\": ...} or {\"String\": ...}");
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonPart& spec) {
  read(spec);
  if (!has_byte_level_) spec.fail("has no ByteLevel step; only byte-level tokenizers are supported");
  is_deepseek_ = steps_are_deepseek();
}

void PreTokenizer::read(const JsonPart& spec) {
  if (has_byte_level_) spec.fail("a step after ByteLevel is not supported");
  const std::string& type = spec.at("type").as_string();
  if (type == "Split") return read_split(spec);
  if (type == "Digits") return read_digits(spec);
  if (type == "ByteLevel") return read_byte_level(spec);
  if (type != "Sequence") spec.fail("type \"", type, "\" is not supported; known: Sequence, Split, Digits, ByteLevel");
  const JsonPart steps = spec.at("pretokenizers");
  for (size_t i = 0; i < steps.array_size(); ++i) read(steps.element(i));
}

void PreTokenizer::read_split(const JsonPart& spec) {
  const JsonPart pattern = spec.at("pattern");
  const auto source = pattern.find("Regex");
  steps_.push_back({source ? source->as_string() : "", read_pattern(pattern), read_behaviour(spec.at("behavior")),
                    spec.flag("invert", false)});
}

void PreTokenizer::read_digits(const JsonPart& spec) {
  const bool single = spec.flag("individual_digits", false);
  const std::string source = single ? R"(\p{N})" : R"(\p{N}+)";
  steps_.push_back({source, Regex::compile(source), Behaviour::kIsolated, false});
}

void PreTokenizer::read_byte_level(const JsonPart& spec) {
  has_byte_level_ = true;
  add_prefix_space_ = spec.flag("add_prefix_space", true);
  if (spec.flag("use_regex", true)) {
    const std::string source(kByteLevelPattern);
    byte_level_step_.emplace(Step{source, Regex::compile(source), Behaviour::kIsolated, false});
  }
}

PreTokenizer::Behaviour PreTokenizer::read_behaviour(const JsonPart& name) {
  const std::string& behaviour = name.as_string();
  if (behaviour == "Isolated") return Behaviour::kIsolated;
  if (behaviour == "Removed") return Behaviour::kRemoved;
  if (behaviour == "MergedWithPrevious") return Behaviour::kMergedWithPrevious;
  if (behaviour == "MergedWithNext") return Behaviour::kMergedWithNext;
  if (behaviour == "Contiguous") return Behaviour::kContiguous;
  name.fail("\"", behaviour,
            "\" is not known; expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

bool PreTokenizer::steps_are_deepseek() const {
  return !byte_level_step_ && !add_prefix_space_ &&
         std::equal(steps_.begin(), steps_.end(), kDeepseekPatterns.begin(), kDeepseekPatterns.end(),
                    [](const Step& step, std::string_view pattern) {
                      return step.source == pattern && step.behaviour == Behaviour::kIsolated && !step.invert;
                    });
}

std::vector<Piece> PreTokenizer::split(std::string_view text) const {
  std::vector<Piece> pieces;
  for_each_piece(text, [&](const Piece& piece) { pieces.push_back(piece); });
  return pieces;
}

std::vector<Piece> PreTokenizer::split_by_steps(std::string_view text) const {
  RegexScratch scratch;
  std::vector<ByteRange> pieces, finer;
  if (!text.empty()) pieces.push_back({0, text.size()});
  for (const Step& step : steps_) {
    finer.clear();
    for (const ByteRange& piece : pieces) apply(step, text, piece, scratch, finer);
    pieces.swap(finer);
  }
  std::vector<Piece> out;
  out.reserve(pieces.size());
  for (const ByteRange& piece : pieces) split_byte_level(text, piece, scratch, out);
  return out;
}

void PreTokenizer::apply(const Step& step, std::string_view text, ByteRange piece, RegexScratch& scratch,
                         std::vector<ByteRange>& out) {
  const std::string_view subject = text.substr(piece.begin, piece.size());
  const auto absolute = [&](size_t begin, size_t end) { return ByteRange{piece.begin + begin, piece.begin + end}; };
  std::vector<Part> parts;
  size_t done = 0;
  while (done < subject.size()) {
    const auto match = step.pattern.find(subject, done, scratch);
    const ByteRange found = match.value_or(ByteRange{subject.size(), subject.size()});
    if (done < found.begin) parts.push_back({absolute(done, found.begin), step.invert});
    if (match) parts.push_back({absolute(found.begin, found.end), !step.invert});
    done = found.end;
  }
  join(step.behaviour, parts);
  for (const Part& part : parts) out.push_back(part.range);
}

// Parts alternate freely (two matches may touch); which of them become one piece is what the behaviours mean.
void PreTokenizer::join(Behaviour behaviour, std::vector<Part>& parts) {
  if (behaviour == Behaviour::kIsolated) return;
  if (behaviour == Behaviour::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.is_match; });
    return;
  }
  // A match goes to a neighbour only when that one is not a match itself: of touching matches, one stays alone.
  const auto belongs_together = [behaviour](const Part& left, const Part& right) {
    switch (behaviour) {
      case Behaviour::kMergedWithPrevious:
        return right.is_match && !left.is_match;
      case Behaviour::kMergedWithNext:
        return left.is_match && !right.is_match;
      default:
        return left.is_match == right.is_match;
    }
  };
  std::vector<Part> joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && belongs_together(parts[i - 1], parts[i])) {
      joined.back().range.end = parts[i].range.end;
    } else {
      joined.push_back(parts[i]);
    }
  }
  parts.swap(joined);
}

void PreTokenizer::split_byte_level(std::string_view text, ByteRange piece, RegexScratch& scratch,
                                    std::vector<Piece>& out) const {
  const bool add_space = add_prefix_space_ && text[piece.begin] != ' ';
  if (!byte_level_step_) {
    out.push_back({piece, add_space});
    return;
  }
  std::vector<ByteRange> finer;
  if (!add_space) {
    apply(*byte_level_step_, text, piece, scratch, finer);
    for (const ByteRange& range : finer) out.push_back({range, false});
    return;
  }
  const std::string spaced = std::string(" ").append(text.substr(piece.begin, piece.size()));
  apply(*byte_level_step_, spaced, {0, spaced.size()}, scratch, finer);
  for (const ByteRange& range : finer) {
    const size_t begin = std::max<size_t>(range.begin, 1) - 1;  // the space itself has no place in the text
    out.push_back({{piece.begin + begin, piece.begin + range.end - 1}, range.begin == 0});
  }
}

}  // namespace asterism::data
