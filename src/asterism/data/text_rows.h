#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/byte_stream.h"
#include "asterism/data/row_source.h"

namespace asterism::data {

/// Bytes of a stream in a window that moves forward: what is held is what was read and not yet given up.
class ByteWindow {
 public:
  explicit ByteWindow(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  std::string_view held() const { return {buffer_.data() + begin_, end_ - begin_}; }
  /// Offset of the first byte held.
  uint64_t offset() const { return offset_; }
  void drop(size_t count);
  /// Reads more behind what is held; false at the end. Views of held() become invalid.
  bool extend();

  bool seekable() const { return stream_->seekable(); }
  /// What is held begins at this byte of the file from now on.
  void seek(uint64_t offset);

 private:
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t offset_ = 0;
  size_t next_read_ = 0;
};

/// The rows of JSON Lines or of a JSON list, whichever the bytes hold.
class TextRows final : public RowSource {
 public:
  /// `place` names the file in origins and messages; `container` is how it was compressed. The name decides about a
  /// list whose first element is no object. `max_row_bytes` is a parameter for tests.
  TextRows(std::string place, std::unique_ptr<ByteStream> stream, Container container, bool named_list,
           size_t max_row_bytes = kMaxRowBytes);

  std::optional<RawRow> next() override;
  bool seekable() const override { return window_.seekable(); }
  RawRow at(uint64_t offset, int64_t number) override;
  std::string format() const override;

 private:
  /// Where a row ends, found in pieces: holds its state between them.
  struct EndFinder {
    bool in_list = false;
    int64_t depth = 0;
    bool in_string = false, escaped = false;
    /// Offset in `bytes` of the line end, comma or bracket that ends the row, or npos.
    size_t find(std::string_view bytes);
  };
  struct Extent {
    std::string_view text;   // up to the terminator
    char terminator = '\0';  // '\0' at the end of the file
    bool too_long = false;
    size_t held = 0;    // bytes of the window that the row and its terminator take
    int64_t lines = 0;  // line ends in bytes of the row that are not held any more
  };

  void recognise(bool named_list);
  void refuse_other_encodings() const;
  bool begins_list(bool named_list);
  Extent find_row();
  std::optional<RawRow> next_line();
  std::optional<RawRow> next_element();
  void give_up_row();
  void skip_space();

  std::string place_;
  ByteWindow window_;
  Container container_;
  size_t max_row_bytes_;
  bool is_list_ = false;
  bool list_open_ = false;
  size_t row_held_ = 0;  // bytes of the row given last, which its view still needs
  int64_t line_ = 1;     // at the beginning of the window behind that row
  bool line_known_ = true;
  int64_t row_ = 0;
  std::string long_row_;  // the beginning of a row that is too long
};

}  // namespace asterism::data
