#include "asterism/core/error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace asterism {

std::string user_message(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) return c10_error->what_without_backtrace();
  return error.what();
}

size_t edit_distance(const std::string& a, const std::string& b) {
  constexpr size_t kLongest = 500;  // time grows with the product of the lengths
  if (std::max(a.size(), b.size()) > kLongest) return a == b ? 0 : std::max(a.size(), b.size());
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace asterism
