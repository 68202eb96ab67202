#include "asterism/data/sample.h"

namespace asterism::data {

int64_t Sample::trained_tokens() const {
  int64_t count = 0;
  for (size_t i = 1; i < weights.size(); ++i) count += weights[i] > 0.0f;
  return count;
}

}  // namespace asterism::data
