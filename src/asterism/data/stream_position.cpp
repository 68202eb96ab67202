#include "asterism/data/stream_position.h"

#include <nlohmann/json.hpp>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

int64_t whole_number(const nlohmann::ordered_json& json, const char* key, const std::string& origin) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_number_integer() || json.at(key) < 0) {
    input_error(origin, ": the position in the data has no whole number ", key, ": ", json.dump());
  }
  return json.at(key).get<int64_t>();
}

}  // namespace

nlohmann::ordered_json position_to_json(const StreamPosition& position, const StreamIdentity& identity) {
  return {{"epoch", position.epoch},
          {"row", position.row},
          {"fingerprint", identity.fingerprint},
          {"samples", identity.samples},
          {"tokens", identity.tokens}};
}

StreamPosition position_from_json(const nlohmann::ordered_json& json, const StreamIdentity& identity,
                                  const std::string& origin) {
  const StreamPosition position{whole_number(json, "epoch", origin), whole_number(json, "row", origin)};
  const int64_t samples = whole_number(json, "samples", origin), tokens = whole_number(json, "tokens", origin);
  if (json.value("fingerprint", nlohmann::ordered_json()) == identity.fingerprint) return position;
  input_error(origin, ": the training data are not those of this checkpoint: it was written with ", samples,
              " samples of ", tokens, " tokens, now they are ", identity.samples, " of ", identity.tokens,
              samples == identity.samples && tokens == identity.tokens ? ", of other content or in another order" : "",
              ". Put the old data and settings back, or choose another name (or checkpoint.resume: never) for a new "
              "run");
}

}  // namespace asterism::data
