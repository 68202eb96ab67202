#pragma once

namespace asterism::bench {

/// Registers the parts of the model at the widths of bench/configs/small.json and wide.json and 2048 tokens, in fp32
/// and bf16, forward and forward with backward: the halves of a layer, an mHC site, the head with its loss, the norms.
/// Names are part/width/dtype/pass: "csa/small/fp32/step".
void register_parts();

}  // namespace asterism::bench
