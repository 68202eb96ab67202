#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "asterism/data/json_value.h"

namespace asterism::cli {

/// Writes what `answer` makes of every row of a JSON Lines file (- = stdin) to stdout, one object a line and at once,
/// or the error it throws (error_row), and goes on. Empty lines are skipped, a byte order mark and CRLF are accepted.
/// InputError when the file cannot be opened, RunError when it cannot be read to its end or nobody can receive the
/// results. The exit code.
int answer_rows(const std::string& file, const std::function<nlohmann::ordered_json(data::JsonValue row)>& answer);

}  // namespace asterism::cli
