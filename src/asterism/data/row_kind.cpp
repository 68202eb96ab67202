#include "asterism/data/row_kind.h"

#include <optional>
#include <string>

#include "asterism/data/chat_error.h"
#include "asterism/data/excerpt.h"

namespace asterism::data {
namespace {

struct KindEntry {
  RowKind kind;
  std::string_view key, name;
};
constexpr KindEntry kKinds[] = {
    {RowKind::Chat, "messages", "chat"},        {RowKind::Tokens, "input_ids", "token"},
    {RowKind::Text, "text", "plain-text"},      {RowKind::ShareGpt, "conversations", "ShareGPT"},
    {RowKind::Alpaca, "instruction", "Alpaca"},
};
constexpr size_t kShownKeys = 200;

const KindEntry& entry_of(RowKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

}  // namespace

RowKind kind_of_row(const JsonValue& row) {
  const KindEntry* found = nullptr;
  for (const KindEntry& candidate : kKinds) {
    if (row.get(candidate.key).is_null()) continue;
    if (found != nullptr) {
      throw ChatError("ambiguous_kind", std::nullopt,
                      text("the row has both ", found->key, " (a ", found->name, " row) and ", candidate.key, " (a ",
                           candidate.name, " row); remove one"));
    }
    found = &candidate;
  }
  if (found != nullptr) return found->kind;
  std::string keys;
  for (const auto& [key, value] : row.as_object()) keys += (keys.empty() ? "" : ", ") + key;
  throw ChatError("unknown_kind", std::nullopt,
                  "a row needs messages, input_ids, text, conversations or instruction; its keys are: " +
                      readable_prefix(keys, kShownKeys));
}

std::string_view kind_name(RowKind kind) {
  return entry_of(kind).name;
}

std::string_view kind_key(RowKind kind) {
  return entry_of(kind).key;
}

bool is_conversation(RowKind kind) {
  return kind != RowKind::Tokens && kind != RowKind::Text;
}

}  // namespace asterism::data
