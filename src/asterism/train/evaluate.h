#pragma once

#include "asterism/data/sample.h"
#include "asterism/model/model.h"

namespace asterism::train {

struct Evaluation {
  double loss_sum = 0.0;
  int64_t tokens = 0;  // trained tokens seen
  int64_t rows = 0;
  int64_t correct = 0;  // of them, most probable token = target

  double loss() const;        // mean over trained tokens
  double perplexity() const;  // exp(loss)
  double accuracy() const;
};

/// Adds the rows of one batch, without gradients or dropout. A row without tokens runs a pass and counts nothing.
void evaluate_rows(const model::Model& model, const std::vector<data::PackedRow>& rows, at::ScalarType compute,
                   int64_t sequence_length, Evaluation& evaluation);

}  // namespace asterism::train
