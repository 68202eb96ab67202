#include "asterism/data/tokenizer_file.h"

#include <utility>

#include "asterism/core/error.h"

namespace asterism::data {

namespace {

using Json = nlohmann::json;

/// Receives the parts of the text as the parser finds them. Values go into `rest`, except below model.vocab and
/// model.merges.
class TokenizerFileReader : public Json::json_sax_t {
 public:
  TokenizerFileReader(const std::string& name, TokenizerFile& file) : name_(name), file_(file) {}

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(int64_t value) override { return list_ == List::kVocab ? put_id(value) : put(Json(value)); }
  bool number_unsigned(uint64_t value) override {
    return list_ == List::kVocab && value <= INT64_MAX ? put_id(static_cast<int64_t>(value)) : put(Json(value));
  }
  bool number_float(double value, const std::string&) override { return put(Json(value)); }
  bool binary(Json::binary_t& value) override { return put(Json(std::move(value))); }

  bool string(std::string& value) override {
    if (list_ != List::kMerges) return put(Json(std::move(value)));
    if (!in_pair_) return put_merge(value);
    pair_.push_back(std::move(value));
    return true;
  }

  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }

  bool start_object(size_t) override {
    if (list_ != List::kNone) return refuse("an object");
    open(Json::object());
    if (at_model_member("vocab")) {
      list_ = List::kVocab;
      file_.tables.vocab.clear();  // of two members with the same name the last one counts
    }
    return true;
  }

  bool start_array(size_t) override {
    if (list_ == List::kMerges && !in_pair_) {
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (list_ != List::kNone) return refuse("an array");
    open(Json::array());
    if (at_model_member("merges")) {
      list_ = List::kMerges;
      file_.tables.merges.clear();
    }
    return true;
  }

  bool end_object() override { return close(); }

  bool end_array() override {
    if (!in_pair_) return close();
    in_pair_ = false;
    if (pair_.size() != 2) return refuse(Json(pair_).dump());
    file_.tables.merges.push_back({std::move(pair_[0]), std::move(pair_[1])});
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    input_error(name_, ": not valid JSON (damaged or incomplete file?): ", error.what());
  }

 private:
  enum class List { kNone, kVocab, kMerges };

  Json* place(Json value) {
    if (stack_.empty()) return &(file_.rest = std::move(value));
    Json& parent = *stack_.back().value;
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool put(Json value) {
    if (list_ != List::kNone) return refuse(value.dump());
    place(std::move(value));
    return true;
  }

  bool put_id(int64_t id) {
    file_.tables.vocab.push_back({std::move(key_), id});
    return true;
  }

  bool put_merge(const std::string& both) {
    const size_t space = both.find(' ');
    if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) return refuse(Json(both).dump());
    file_.tables.merges.push_back({both.substr(0, space), both.substr(space + 1)});
    return true;
  }

  void open(Json value) {
    std::string name = stack_.empty() || !stack_.back().value->is_object() ? std::string() : key_;
    Json* opened = place(std::move(value));
    stack_.push_back({opened, std::move(name)});
  }

  bool close() {
    list_ = List::kNone;
    stack_.pop_back();
    return true;
  }

  /// Whether the value just opened is that member of the member "model" of the whole.
  bool at_model_member(std::string_view name) const {
    return stack_.size() == 3 && stack_[1].name == "model" && stack_[2].name == name;
  }

  [[noreturn]] bool refuse(const std::string& found) const {
    if (list_ == List::kVocab) {
      input_error(name_, ".model.vocab: token \"", key_, "\" has id ", found, "; expected an integer");
    }
    input_error(name_, ".model.merges[", file_.tables.merges.size(),
                "]: expected \"left right\" or [\"left\", \"right\"], found ", found);
  }

  // An object or array that has not ended. The pointers stay valid: a value is only added to the innermost one.
  struct Open {
    Json* value;
    std::string name;
  };

  const std::string& name_;
  TokenizerFile& file_;
  std::vector<Open> stack_;
  std::string key_;
  List list_ = List::kNone;
  bool in_pair_ = false;  // inside a merge that is an array
  std::vector<std::string> pair_;
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view json, const std::string& name) {
  TokenizerFile file;
  TokenizerFileReader reader(name, file);
  Json::sax_parse(json, &reader);
  return file;
}

}  // namespace asterism::data
