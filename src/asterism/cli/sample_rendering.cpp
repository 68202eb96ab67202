#include "asterism/cli/sample_rendering.h"

#include <span>
#include <string>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/utf8.h"

namespace asterism::cli {
namespace {

constexpr std::string_view kGreen = "\x1b[32m", kYellow = "\x1b[33m", kDim = "\x1b[2m", kReset = "\x1b[0m";
constexpr std::string_view kBorder = "│";

std::string bytes_of(int64_t id, const data::Tokenizer& tokenizer) {
  if (!tokenizer.has_token(id)) return text("<", id, ">");
  return tokenizer.decode_bytes(std::span(&id, 1));
}

std::string_view color_of(float weight) {
  return weight == 0.0f ? "" : weight == 1.0f ? kGreen : kYellow;
}

/// The border between two tokens, in the middle of text of this weight.
std::string border(float weight, const RenderStyle& style) {
  if (!style.color) return std::string(kBorder);
  return text(kReset, kDim, kBorder, kReset, color_of(weight));
}

/// Neighbouring tokens of one weight.
std::string render_run(const std::vector<std::string>& tokens, float weight, const RenderStyle& style) {
  std::string body;
  for (const std::string& token : tokens) {
    // With borders each token is shown by itself: one inside a character must not glue its parts together.
    if (style.token_borders && !body.empty()) body += border(weight, style);
    body += style.token_borders ? printable(token) : token;
  }
  if (!style.token_borders) body = printable(body);
  if (weight == 0.0f || body.empty()) return body;
  if (style.color) return text(color_of(weight), body, kReset);
  return text("⟦", weight == 1.0f ? "" : text(weight, ":"), body, "⟧");
}

}  // namespace

std::string render_sample(const data::Sample& sample, const data::Tokenizer& tokenizer, const RenderStyle& style) {
  std::string out;
  for (size_t t = 0; t < sample.ids.size();) {
    const auto weight_at = [&](size_t i) { return i == 0 ? 0.0f : sample.weights[i]; };
    const float weight = weight_at(t);
    std::vector<std::string> tokens;
    for (; t < sample.ids.size() && weight_at(t) == weight; ++t) tokens.push_back(bytes_of(sample.ids[t], tokenizer));
    if (style.token_borders && !out.empty()) out += border(0.0f, style);
    out += render_run(tokens, weight, style);
  }
  return out;
}

std::string printable(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const data::Utf8Sequence character = data::read_utf8(bytes, at);
    const bool layout = character.value == '\n' || character.value == '\t';
    const bool control = character.value < 0x20 || (character.value >= 0x7F && character.value < 0xA0);
    if (character.valid && (layout || !control)) {
      out.append(bytes.substr(at, character.length));
    } else {
      for (size_t i = 0; i < character.length; ++i) {
        const auto byte = static_cast<unsigned char>(bytes[at + i]);
        out += text("\\x", kHex[byte >> 4], kHex[byte & 15]);
      }
    }
    at += character.length;
  }
  return out;
}

}  // namespace asterism::cli
