#pragma once

#include <string>

namespace asterism::data {

/// Part of a mixture: a file, folder or pattern, and how often an epoch visits its samples.
struct DataSource {
  std::string path;
  double weight = 1.0;  // above 0
  bool operator==(const DataSource&) const = default;
};

}  // namespace asterism::data
