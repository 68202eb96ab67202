#include "asterism/data/tokenize.h"

#include <utility>

namespace asterism::data {

TokenizeFunction tokenize_with(std::shared_ptr<const Tokenizer> tokenizer) {
  return [tokenizer = std::move(tokenizer)](std::string_view text, std::span<const ByteRange> as_text,
                                            std::vector<int64_t>& ids, std::vector<size_t>& ends) {
    Encoding encoding = tokenizer->encode_with_ranges(text, as_text);
    ids = std::move(encoding.ids);
    ends.clear();
    ends.reserve(encoding.ranges.size());
    for (const ByteRange& range : encoding.ranges) ends.push_back(range.end);
  };
}

}  // namespace asterism::data
