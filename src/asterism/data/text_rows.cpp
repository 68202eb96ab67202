#include "asterism/data/text_rows.h"

#include <algorithm>
#include <cstring>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kFirstRead = size_t{8} << 10;  // small: at() often needs one row only
constexpr size_t kMostRead = size_t{1} << 20;
constexpr size_t kLongRowShown = 4096;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

int64_t line_ends(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

// ---- the window

void ByteWindow::drop(size_t count) {
  begin_ += count;
  offset_ += count;
}

bool ByteWindow::extend() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Reads grow with what is read in one go; a long row doubles them, so that moving it stays linear in all.
  next_read_ = std::clamp(next_read_ * 2, kFirstRead, std::max(kMostRead, end_));
  if (buffer_.size() < end_ + next_read_) buffer_.resize(end_ + next_read_);
  const size_t count = stream_->read(buffer_.data() + end_, next_read_);
  end_ += count;
  return count > 0;
}

void ByteWindow::seek(uint64_t offset) {
  if (offset >= offset_ && offset - offset_ < end_ - begin_) return drop(static_cast<size_t>(offset - offset_));
  stream_->seek(offset);
  begin_ = end_ = 0;
  offset_ = offset;
  next_read_ = 0;
}

// ---- what the bytes are

TextRows::TextRows(std::string place, std::unique_ptr<ByteStream> stream, Container container, bool named_list,
                   size_t max_row_bytes)
    : place_(std::move(place)), window_(std::move(stream)), container_(container), max_row_bytes_(max_row_bytes) {
  recognise(named_list);
}

void TextRows::recognise(bool named_list) {
  window_.extend();
  while (window_.held().size() < 4 && window_.extend()) continue;
  refuse_other_encodings();
  if (window_.held().starts_with(kByteOrderMark)) window_.drop(kByteOrderMark.size());
  skip_space();
  is_list_ = list_open_ = begins_list(named_list);
  if (is_list_) {
    window_.drop(1);
    return;
  }
  const std::string_view first_line = window_.held().substr(0, window_.held().find('\n'));
  if (trimmed(first_line) == "{" && first_line.size() < window_.held().size()) {
    input_error(place_, ":", line_,
                ": one JSON object stands over several lines; expected a row per line, or a list "
                "of rows, [{...}, ...]");
  }
}

void TextRows::refuse_other_encodings() const {
  const std::string_view begin = window_.held().substr(0, 2);
  const bool marked = begin == "\xFF\xFE" || begin == "\xFE\xFF";
  const bool wide_ascii = begin.size() == 2 && (begin[0] == '\0') != (begin[1] == '\0');
  if (marked || wide_ascii) {
    input_error(place_, ": the file is UTF-16 or UTF-32; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)");
  }
}

bool TextRows::begins_list(bool named_list) {
  if (!window_.held().starts_with("[")) return false;
  size_t second = std::string_view::npos;
  do {
    second = window_.held().find_first_not_of(kSpace, 1);
  } while (second == std::string_view::npos && window_.held().size() < max_row_bytes_ && window_.extend());
  if (named_list || second == std::string_view::npos) return true;
  const char c = window_.held()[second];
  return c == '{' || c == ']';
}

std::string TextRows::format() const {
  const std::string base = is_list_ ? "a JSON list" : "JSON Lines";
  return container_ == Container::Plain ? base : text(base, " (", container_name(container_), ")");
}

// ---- rows

std::optional<RawRow> TextRows::next() {
  give_up_row();
  return is_list_ ? next_element() : next_line();
}

RawRow TextRows::at(uint64_t offset, int64_t number) {
  if (!seekable()) return RowSource::at(offset, number);
  give_up_row();
  window_.seek(offset);
  list_open_ = is_list_;
  line_known_ = !is_list_;
  line_ = number;
  row_ = number - 1;
  const std::optional<RawRow> row = next();
  if (!row || row->offset != offset) {
    run_error(place_, ": the file has changed since it was opened: no row begins at byte ", offset, " any more");
  }
  return *row;
}

std::optional<RawRow> TextRows::next_line() {
  while (!window_.held().empty() || window_.extend()) {
    const uint64_t offset = window_.offset();
    const Extent extent = find_row();
    const std::string_view row = trimmed(extent.text);
    const int64_t line = line_;
    row_held_ = extent.held;
    if (extent.terminator == '\n') ++line_;
    if (row.empty()) {
      give_up_row();
      continue;
    }
    return RawRow{.text = row,
                  .origin = text(place_, ":", line),
                  .cut_off = extent.terminator == '\0',
                  .too_long = extent.too_long,
                  .offset = offset + static_cast<uint64_t>(row.data() - extent.text.data()),
                  .number = line};
  }
  return std::nullopt;
}

std::optional<RawRow> TextRows::next_element() {
  skip_space();
  if (!list_open_) {
    if (window_.held().empty()) return std::nullopt;
    input_error(place_, line_known_ ? text(":", line_) : "", ": text follows the end of the list of rows");
  }
  const uint64_t offset = window_.offset();
  const Extent extent = find_row();
  const std::string_view row = trimmed(extent.text);
  row_held_ = extent.held;
  const int64_t line = line_;
  line_ += extent.lines + line_ends(window_.held().substr(0, extent.held));
  list_open_ = extent.terminator == ',';
  if (extent.terminator == ']' && row.empty() && row_ == 0) {  // an empty list
    give_up_row();
    return next_element();
  }
  ++row_;
  const std::string where = line_known_ ? text(":", line) : "";
  return RawRow{.text = row,
                .origin = text(place_, where, " (row ", row_, ")"),
                .cut_off = extent.terminator == '\0',
                .too_long = extent.too_long,
                .offset = offset,
                .number = row_};
}

/// The row at the beginning of the window. One that is too long is dropped while its end is looked for.
TextRows::Extent TextRows::find_row() {
  EndFinder end{.in_list = is_list_};
  Extent extent;
  size_t searched = 0;
  for (;;) {
    const std::string_view held = window_.held();
    const size_t found = end.find(held.substr(searched));
    const bool ended = found != std::string_view::npos;
    const size_t length = ended ? searched + found : held.size();
    if (!extent.too_long && length > max_row_bytes_) {
      extent.too_long = true;
      long_row_ = held.substr(0, kLongRowShown);
    }
    if (ended) {
      extent.terminator = held[length];
      extent.text = extent.too_long ? std::string_view(long_row_) : held.substr(0, length);
      extent.held = length + 1;
      return extent;
    }
    searched = length;
    if (extent.too_long) {
      extent.lines += line_ends(held);
      window_.drop(length);
      searched = 0;
    }
    if (window_.extend()) continue;
    extent.text = extent.too_long ? std::string_view(long_row_) : window_.held();
    extent.held = window_.held().size();
    return extent;
  }
}

/// Only strings and nesting matter in a list; whether the element is valid JSON is for the parser to say.
size_t TextRows::EndFinder::find(std::string_view bytes) {
  if (!in_list) return bytes.find('\n');
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
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
  return std::string_view::npos;
}

void TextRows::give_up_row() {
  window_.drop(row_held_);
  row_held_ = 0;
}

void TextRows::skip_space() {
  for (;;) {
    const std::string_view held = window_.held();
    const size_t count = std::min(held.find_first_not_of(kSpace), held.size());
    line_ += line_ends(held.substr(0, count));
    window_.drop(count);
    if (count < held.size() || !window_.extend()) return;
  }
}

}  // namespace asterism::data
