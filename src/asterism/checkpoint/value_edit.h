#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/checkpoint/recoding.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

/// Whole rows of a tensor of the model, from value number `first` on.
struct EditedRows {
  const model::TensorSpec& spec;
  int64_t first = 0, rows = 0, columns = 0;

  int64_t count() const { return rows * columns; }
};

/// A change of values on the way from one checkpoint into another, such as an adapter that is merged. Its functions are
/// called from several threads at a time.
class ValueEdit {
 public:
  virtual ~ValueEdit() = default;

  /// What tells it from every other edit: a conversion that was begun is continued with the same mark only.
  virtual nlohmann::ordered_json mark() const = 0;
  virtual bool edits(const std::string& tensor) const = 0;

  /// Of a floating tensor: `values` holds the old values and gets the new ones; `change` holds zeros and gets
  /// new - old, which may be smaller than what fp32 can add to a value.
  virtual void apply(const EditedRows& rows, float* values, float* change) const = 0;
  /// Of a table: its new entries.
  virtual void replace_entries(const EditedRows& rows, int64_t* entries) const = 0;
};

/// What an edit did to numbers that are stored rounded.
struct EditCounts {
  int64_t adapted = 0;   // numbers that it changes by anything but 0
  int64_t changed = 0;   // numbers whose stored value is another one than without the edit
  double along = 0.0;    // dot product of the change as stored with the change as meant
  double squared = 0.0;  // of the change as meant with itself

  /// How much of the change got through rounding: 1 all of it (on average), 0 nothing.
  double kept() const { return squared > 0.0 ? along / squared : changed > 0 ? 1.0 : 0.0; }
  EditCounts& operator+=(const EditCounts& other);
};

/// Recodes rows with an edit in between. One object per thread: it keeps its buffers.
class EditingRecoder {
 public:
  /// Decodes rows, edits them and writes them in the form `to`; the first row begins a block. Adds to `counts`, for
  /// which the rows are recoded without the edit, too. Returns what rounding did to the edited values. RunError as
  /// Recoder.
  RecodingLoss recode(const ValueEdit& edit, const EditedRows& rows, const Form& from, const MatrixBytes& in,
                      const Form& to, std::byte* data, std::byte* scale, EditCounts& counts);

  /// The same for a table in I64 or I32 on both sides.
  RecodingLoss recode_entries(const ValueEdit& edit, const EditedRows& rows, const Form& from, const std::byte* in,
                              const Form& to, std::byte* data, EditCounts& counts);

 private:
  Recoder recoder_;
  std::vector<float> values_, change_, without_, with_;
  std::vector<int64_t> old_entries_, new_entries_;
};

}  // namespace asterism::checkpoint
