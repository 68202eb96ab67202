#pragma once

#include <string>
#include <string_view>

#include "asterism/data/sample.h"
#include "asterism/data/tokenizer.h"

namespace asterism::cli {

struct RenderStyle {
  bool color = false;  // trained tokens green, those of another weight than 1 yellow; else ⟦trained⟧, ⟦0.5:half⟧
  bool token_borders = false;  // a │ between neighbouring tokens
};

/// The text of a sample as its tokens give it, with what is trained marked. A token counts as trained when it is a
/// target: the first of a document never is. Ids without a token are shown as <id>.
std::string render_sample(const data::Sample& sample, const data::Tokenizer& tokenizer, const RenderStyle& style);

/// Text that a terminal shows and does not obey: control characters other than tab and newline, and bytes that are not
/// UTF-8, are written as \x1b.
std::string printable(std::string_view text);

}  // namespace asterism::cli
