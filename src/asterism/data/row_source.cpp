#include "asterism/data/row_source.h"

#include <glob.h>

#include <algorithm>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kReadable[] = {".jsonl", ".json"};
constexpr std::string_view kLater[] = {".gz", ".zst", ".parquet"};

template <typename Suffixes>
bool ends_with_any(const std::string& name, const Suffixes& suffixes) {
  return std::any_of(std::begin(suffixes), std::end(suffixes), [&](auto suffix) { return name.ends_with(suffix); });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && (ends_with_any(name, kReadable) || ends_with_any(name, kLater))) {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) input_error(folder.string(), ": the folder holds no data file (.jsonl or .json)");
  return files;
}

std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  std::vector<fs::path> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    if (fs::is_regular_file(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (status == GLOB_ABORTED) input_error(pattern, ": a folder of this pattern cannot be read");
  if (files.empty()) input_error(pattern, ": no file matches this pattern");
  return files;
}

}  // namespace

RowSource::RowSource(const fs::path& path) {
  const std::string name = path.filename().string();
  if (ends_with_any(name, kLater)) {
    input_error(path.string(), ": compressed and Parquet data come with later work; convert it to .jsonl");
  }
  if (!ends_with_any(name, kReadable)) {
    input_error(path.string(),
                ": unknown kind of data file; expected .jsonl (a row per line) or .json (a list of rows)");
  }
  file_ = MappedFile::open(path);
  text_ = file_->text();
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  is_list_ = name.ends_with(".json");
  if (!is_list_) return;
  skip_space();
  if (at_ == text_.size() || text_[at_] != '[') {
    input_error(path.string(),
                ": a .json file must be a list of rows, [{...}, ...]; rename a file with a row per line to ", ".jsonl");
  }
  ++at_;
  list_open_ = true;
}

std::optional<RawRow> RowSource::next() {
  return is_list_ ? next_element() : next_line();
}

std::optional<RawRow> RowSource::next_line() {
  while (at_ < text_.size()) {
    const size_t begin = at_;
    const size_t newline = text_.find('\n', begin);
    const bool last = newline == std::string_view::npos;
    at_ = last ? text_.size() : newline + 1;
    const std::string_view row = trimmed(text_.substr(begin, at_ - begin));
    if (!row.empty()) return RawRow{row, origin(static_cast<size_t>(row.data() - text_.data())), last};
  }
  return std::nullopt;
}

std::optional<RawRow> RowSource::next_element() {
  skip_space();
  if (!list_open_) {
    if (at_ == text_.size()) return std::nullopt;
    input_error(origin(at_), ": text follows the end of the list of rows");
  }
  const size_t begin = at_;
  at_ = element_end();
  const bool closed = at_ < text_.size() && text_[at_] == ']';
  const bool cut_off = at_ == text_.size();
  const std::string_view row = trimmed(text_.substr(begin, at_ - begin));
  if (closed || cut_off) list_open_ = false;
  if (!cut_off) ++at_;
  if (closed && row.empty() && row_ == 0) return next_element();  // an empty list
  ++row_;
  return RawRow{row, origin(begin) + " (row " + std::to_string(row_) + ")", cut_off};
}

/// Offset of the comma or bracket that ends the element at `at_`, or the end of the text. Only strings and nesting
/// matter here; whether the element is valid JSON is for the parser to say.
size_t RowSource::element_end() const {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = at_; i < text_.size(); ++i) {
    const char c = text_[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']')) {
      return i;
    } else if (c == '}' || c == ']') {
      depth = std::max<int64_t>(depth - 1, 0);
    }
  }
  return text_.size();
}

std::string RowSource::origin(size_t offset) {
  line_ += std::count(text_.begin() + counted_to_, text_.begin() + offset, '\n');
  counted_to_ = offset;
  return file_->path().string() + ":" + std::to_string(line_);
}

void RowSource::skip_space() {
  at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
}

std::vector<fs::path> data_files(const std::string& source) {
  std::vector<fs::path> files;
  if (fs::is_directory(source)) {
    files = files_of_folder(source);
  } else if (fs::exists(source)) {
    files = {source};
  } else if (source.find_first_of("*?[") != std::string::npos) {
    files = files_of_pattern(source);
  } else {
    input_error(source, ": no such data file or folder");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace asterism::data
