#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/tensor_compare.h"
#include "asterism/cli/tensor_set.h"
#include "asterism/core/error.h"
#include "asterism/core/progress.h"

namespace asterism::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownNames = 20;

/// A tensor that both sides have.
struct Pair {
  std::string name;
  LazyTensor a, b;
  TensorDifference difference;  // empty when the shapes differ

  bool same_shape() const { return a.shape == b.shape; }
  bool same_dtype() const { return a.form == b.form; }
  bool equal(const DiffArgs& args) const {
    return same_shape() && (args.ignore_dtype || same_dtype()) && difference.differing == 0;
  }
};

struct Comparison {
  std::vector<std::string> only_a, only_b;
  std::vector<Pair> pairs;

  bool equal(const DiffArgs& args) const {
    return only_a.empty() && only_b.empty() &&
           std::ranges::all_of(pairs, [&](const Pair& pair) { return pair.equal(args); });
  }
};

/// Compares a few megabytes at a time, whatever the size: whole rows, in steps that FP8 blocks and experts allow.
TensorDifference compare_values(const LazyTensor& a, const LazyTensor& b, const Tolerance& tolerance) {
  constexpr int64_t kStepValues = int64_t{1} << 20, kStepRows = 128;
  const int64_t rows = a.num_rows(), matrix_rows = std::min(a.matrix_rows, b.matrix_rows);
  const int64_t step = std::max(kStepValues / std::max<int64_t>(a.columns(), 1) / kStepRows * kStepRows, kStepRows);
  TensorDifference difference;
  for (int64_t row = 0; row < rows;) {
    const int64_t count = std::min(step, matrix_rows - row % matrix_rows);
    difference += compare_tensors(a.rows(row, count), b.rows(row, count), tolerance);
    row += count;
  }
  return difference;
}

Comparison compare(const DiffArgs& args) {
  TensorSet a = open_tensors(args.a), b = open_tensors(args.b);
  align_experts(a, b);
  Comparison result;
  for (const auto& [name, tensor] : b) {
    if (!a.contains(name)) result.only_b.push_back(name);
  }
  Progress progress({.label = "diff", .unit = "tensors", .total = static_cast<int64_t>(a.size())});
  int64_t done = 0;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      result.only_a.push_back(name);
    } else {
      Pair pair{name, tensor, other->second, {}};
      if (pair.same_shape()) pair.difference = compare_values(tensor, other->second, {args.rtol, args.atol});
      result.pairs.push_back(std::move(pair));
    }
    progress.update(++done);
  }
  return result;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return text(at::IntArrayRef(shape));
}

std::string short_number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

void print_names(const std::string& title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::cout << title << " (" << names.size() << "):\n";
  for (size_t i = 0; i < std::min(names.size(), kShownNames); ++i) std::cout << "  " << names[i] << "\n";
  if (names.size() > kShownNames) std::cout << "  and " << names.size() - kShownNames << " more\n";
}

std::string describe_pair(const Pair& pair) {
  if (!pair.same_shape()) return text("shapes ", shape_text(pair.a.shape), " and ", shape_text(pair.b.shape));
  std::string line;
  if (!pair.same_dtype()) {
    line = text("types ", pair.a.form, " and ", pair.b.form, "; ");
  }
  const TensorDifference& difference = pair.difference;
  return line + text(difference.differing, " of ", difference.elements, " elements differ, largest difference ",
                     short_number(difference.max_absolute), " (relative ", short_number(difference.max_relative),
                     "), cosine ", difference.cosine());
}

void print_for_people(const Comparison& comparison, const DiffArgs& args) {
  print_names("only in " + args.a, comparison.only_a);
  print_names("only in " + args.b, comparison.only_b);
  std::vector<const Pair*> different;
  for (const Pair& pair : comparison.pairs) {
    if (!pair.equal(args)) different.push_back(&pair);
  }
  // The worst first; shapes that differ before all.
  std::ranges::stable_sort(different, std::ranges::greater(), [](const Pair* pair) {
    return std::pair(!pair->same_shape(), pair->difference.max_absolute);
  });
  std::vector<std::string> lines;
  for (const Pair* pair : different) lines.push_back(pair->name + ": " + describe_pair(*pair));
  print_names("different", lines);
  double largest = 0.0, lowest_cosine = 1.0;
  for (const Pair& pair : comparison.pairs) {
    if (!pair.same_shape()) continue;
    largest = std::max(largest, pair.difference.max_absolute);
    const double cosine = pair.difference.cosine();
    if (!(cosine >= lowest_cosine)) lowest_cosine = cosine;
  }
  std::cout << (comparison.equal(args) ? "equal" : "different") << ": " << comparison.pairs.size()
            << " tensors in both, " << different.size() << " of them different; largest difference "
            << short_number(largest) << ", lowest cosine " << lowest_cosine << " (rtol " << short_number(args.rtol)
            << ", atol " << short_number(args.atol) << ")\n";
}

Json to_json(const Pair& pair, const DiffArgs& args) {
  Json object = {{"name", pair.name}, {"equal", pair.equal(args)}};
  if (pair.same_shape()) {
    object["shape"] = pair.a.shape;
  } else {
    object["shape_a"] = pair.a.shape;
    object["shape_b"] = pair.b.shape;
  }
  object["dtype_a"] = pair.a.form;
  object["dtype_b"] = pair.b.form;
  if (!pair.same_shape()) return object;
  object["differing"] = pair.difference.differing;
  object["max_absolute"] = pair.difference.max_absolute;  // null when not finite
  object["max_relative"] = pair.difference.max_relative;
  object["cosine"] = pair.difference.cosine();
  return object;
}

void print_json(const Comparison& comparison, const DiffArgs& args) {
  Json tensors = Json::array();
  for (const Pair& pair : comparison.pairs) tensors.push_back(to_json(pair, args));
  const Json result = {{"a", args.a},
                       {"b", args.b},
                       {"equal", comparison.equal(args)},
                       {"rtol", args.rtol},
                       {"atol", args.atol},
                       {"only_a", comparison.only_a},
                       {"only_b", comparison.only_b},
                       {"tensors", tensors}};
  std::cout << result.dump(2) << "\n";
}

}  // namespace

int run_diff(const DiffArgs& args) {
  const Comparison comparison = compare(args);
  if (args.json) {
    print_json(comparison, args);
  } else {
    print_for_people(comparison, args);
  }
  return comparison.equal(args) ? kDone : kNotEqual;
}

}  // namespace asterism::cli
