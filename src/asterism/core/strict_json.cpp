#include "asterism/core/strict_json.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/core/shortened.h"

namespace asterism {

namespace {

constexpr size_t kMaxDepth = 64;  // what is nested deeper would overflow the stack where it is copied or written
constexpr size_t kMaxOrderedKeys = 10'000;

/// Builds a tree from the events of nlohmann's parser. (Its own builder with a callback looks through the whole parent
/// at the end of every object: the square of the tensors of a file.)
template <typename Json>
class StrictBuilder {
 public:
  StrictBuilder(std::string origin, size_t max_keys) : origin_(std::move(origin)), max_keys_(max_keys) {}

  Json take() { return std::move(root_); }

  // The names are those that the parser calls.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return put(std::move(value)); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto& object = open_.back()->template get_ref<const typename Json::object_t&>();
    if (object.find(name) != object.end()) {
      input_error(origin_, ": the key '", shortened(name), "' appears twice; the file is corrupt");
    }
    if (object.size() == max_keys_) {
      input_error(origin_, ": expected at most ", max_keys_, " keys in one object, found more");
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr) {
      input_error(origin_, ": expected numbers that a double can hold: ", shortened(error.what()));
    }
    input_error(origin_, ": not valid JSON at byte ", position, "; the file is incomplete or corrupt");
  }

 private:
  Json& add(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    auto& object = parent.template get_ref<typename Json::object_t&>();
    return object.emplace(key_, std::move(value)).first->second;
  }

  bool put(Json value) {
    add(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (open_.size() == kMaxDepth) input_error(origin_, ": nested more than ", kMaxDepth, " deep; the file is corrupt");
    open_.push_back(&add(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string origin_;
  const size_t max_keys_;
  Json root_;
  std::string key_;
  std::vector<Json*> open_;  // a parent does not grow while a child is open, so these stay valid
};

template <typename Json>
Json parse(std::string_view content, const std::string& origin, size_t max_keys) {
  StrictBuilder<Json> builder(origin, max_keys);
  Json::sax_parse(content.begin(), content.end(), &builder);
  return builder.take();
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view content, const std::string& origin) {
  return parse<nlohmann::json>(content, origin, std::numeric_limits<size_t>::max());
}

nlohmann::ordered_json parse_ordered_json(std::string_view content, const std::string& origin) {
  return parse<nlohmann::ordered_json>(content, origin, kMaxOrderedKeys);
}

}  // namespace asterism
