#pragma once

#include <cstdint>

#include "asterism/train/recipe.h"

namespace asterism::train {

/// Learning rate of update `step` (from 0) of `steps`: a function of the step alone, so a resumed run cannot drift.
/// Warm-up over w steps: lr * (k + 1) / w. Then with p = (k - w) / (steps - w):
///   cosine  lr * (min + (1 - min) * (1 + cos(pi p)) / 2)
///   linear  lr * (min + (1 - min) * (1 - p))
///   constant lr
double learning_rate(double lr, const ScheduleSection& schedule, int64_t step, int64_t steps);

}  // namespace asterism::train
