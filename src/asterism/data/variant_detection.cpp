#include "asterism/data/variant_detection.h"

#include "asterism/core/file.h"
#include "asterism/data/chat_markup.h"
#include "asterism/data/sha256.h"

namespace asterism::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kSystemHeaderId = 128799;

struct KnownEncoder {
  ChatVariant variant;
  std::string_view sha256;
};
constexpr KnownEncoder kKnownEncoders[] = {
    {ChatVariant::V4Preview, "bdbd57c132a1b3725042323d02b98b9d1df28e5f388f134399555d041f5055e0"},
    {ChatVariant::V4_0731, "abc0d26120250dda0ae077dc64aa28836026e61e970854aaeb792445e6a0dde6"},
    {ChatVariant::V4_1, "502bdaec8a3fd88ebc24c4721a7038fbe42f2063c664638127056107920035c1"},
};

struct EncoderFile {
  const char* name;
  ChatVariant variant;  // of a file of this name that is not known
};
constexpr EncoderFile kEncoderFiles[] = {{"encoding_dsv4.py", ChatVariant::V4_0731},
                                         {"encoding.py", ChatVariant::V4_1}};

std::optional<VariantChoice> variant_of_encoder(const fs::path& folder) {
  for (const EncoderFile& file : kEncoderFiles) {
    const fs::path path = folder / "encoding" / file.name;
    if (!fs::is_regular_file(path)) continue;
    if (const auto known = variant_of_digest(sha256(read_text(path)))) {
      return VariantChoice{*known, path.string() + " is the encoder of this version"};
    }
    return VariantChoice{file.variant, path.string() + " is an unknown edition of the encoder; taken by its name"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ChatVariant> variant_of_digest(std::string_view sha256) {
  for (const KnownEncoder& known : kKnownEncoders) {
    if (sha256 == known.sha256) return known.variant;
  }
  return std::nullopt;
}

VariantChoice detect_variant(const fs::path& place, const Tokenizer* tokenizer) {
  const fs::path folder = fs::is_directory(place) ? place : place.parent_path();
  if (const auto choice = variant_of_encoder(folder)) return *choice;
  if (tokenizer != nullptr && tokenizer->token_id(kSystemHeader) == kSystemHeaderId) {
    return {ChatVariant::V4_1, "the tokenizer has the token <｜System｜>"};
  }
  const fs::path chat_template = folder / "chat_template.jinja";
  if (fs::is_regular_file(chat_template) && read_text(chat_template).find(kSystemHeader) != std::string::npos) {
    return {ChatVariant::V4_1, chat_template.string() + " writes <｜System｜>"};
  }
  return {ChatVariant::V4_0731, "the checkpoint names no version of the encoding; this one is the standard"};
}

}  // namespace asterism::data
