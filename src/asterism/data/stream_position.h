#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace asterism::data {

/// A place in the endless stream of packed rows: in front of row `row` of epoch `epoch`. `row` may be one past the last
/// of the epoch, which is the start of the next.
struct StreamPosition {
  int64_t epoch = 0;
  int64_t row = 0;
  bool operator==(const StreamPosition&) const = default;
};

/// What a stream is made of. Positions mean the same only in equal streams.
struct StreamIdentity {
  std::string fingerprint;  // of samples, order and packing
  int64_t samples = 0, tokens = 0;
};

/// The position as the JSON value that a checkpoint keeps.
nlohmann::ordered_json position_to_json(const StreamPosition& position, const StreamIdentity& identity);

/// InputError that begins with `origin` when the value is no position, or one of another stream.
StreamPosition position_from_json(const nlohmann::ordered_json& json, const StreamIdentity& identity,
                                  const std::string& origin);

}  // namespace asterism::data
