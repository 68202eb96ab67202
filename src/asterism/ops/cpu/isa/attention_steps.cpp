#include "asterism/ops/cpu/isa/attention_rows.h"
#include "asterism/ops/cpu/isa/attention_tile.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

template <typename From>
void pack_rows(const PackKeysArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    Element* row = static_cast<Element*>(args.table.rows) + i * args.table.stride;
    convert(static_cast<const From*>(args.source) + i * args.source_stride, args.width, row);
    clear(row + args.width, args.table.stride - args.width);
  }
}

void pack_keys(const PackKeysArgs& args, int64_t begin, int64_t end) {
  const int64_t last = smallest(end, args.table.num_rows);
  if (args.bf16) {
    pack_rows<uint16_t>(args, begin, last);
  } else {
    pack_rows<float>(args, begin, last);
  }
  for (int64_t i = last; i < end; ++i) {
    clear(static_cast<Element*>(args.table.rows) + i * args.table.stride, args.table.stride);
  }
}

}  // namespace

AttentionSteps attention_steps() {
  return {.element_size = sizeof(Element),
          .pack_keys = pack_keys,
          .open_forward = open_forward,
          .forward_tile = forward_tile,
          .close_forward = close_forward,
          .open_backward = open_backward,
          .backward_tile = backward_tile,
          .close_backward = close_backward,
          .mass_tile = mass_tile};
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
