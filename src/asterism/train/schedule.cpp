#include "asterism/train/schedule.h"

#include <cmath>
#include <numbers>

namespace asterism::train {

double learning_rate(double lr, const ScheduleSection& schedule, int64_t step, int64_t steps) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.decay == Decay::kConstant || steps <= warmup) return lr;
  const double p = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  const double shape = schedule.decay == Decay::kCosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * p)) : 1.0 - p;
  return lr * (schedule.min_ratio + (1.0 - schedule.min_ratio) * shape);
}

}  // namespace asterism::train
