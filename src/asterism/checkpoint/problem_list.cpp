#include "asterism/checkpoint/problem_list.h"

#include "asterism/core/error.h"
#include "asterism/core/shortened.h"

namespace asterism::checkpoint {

namespace {

constexpr size_t kShownPerKind = 10;

}  // namespace

void ProblemList::add(const std::string& kind, const std::string& finding) {
  if (counts_[kind]++ == 0) kinds_.push_back(kind);
  auto& shown = shown_[kind];
  if (shown.size() < kShownPerKind) shown.push_back(shortened(finding));
}

size_t ProblemList::count(const std::string& kind) const {
  const auto found = counts_.find(kind);
  return found == counts_.end() ? 0 : found->second;
}

void ProblemList::throw_if_any(const std::string& origin, const std::string& hint) const {
  if (empty()) return;
  std::string message = origin + ":";
  for (const std::string& kind : kinds_) {
    message += text("\n  ", counts_.at(kind), " ", kind, ":");
    for (const std::string& finding : shown_.at(kind)) message += "\n    " + finding;
    const size_t hidden = counts_.at(kind) - shown_.at(kind).size();
    if (hidden > 0) message += text("\n    and ", hidden, " more");
  }
  throw InputError(message + "\n  " + hint);
}

}  // namespace asterism::checkpoint
