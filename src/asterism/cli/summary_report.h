#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "asterism/data/inspection.h"

namespace asterism::cli {

/// The totals of a data set for people: several lines, each ended.
std::string summary_text(const data::DataSummary& summary);

/// The same for programs.
nlohmann::ordered_json summary_json(const data::DataSummary& summary);

/// 1234567 as "1,234,567".
std::string grouped(int64_t number);

}  // namespace asterism::cli
