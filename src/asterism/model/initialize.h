#pragma once

#include "asterism/model/weights.h"

namespace asterism::model {

/// Random weights as the published model is initialised: matrices, router and mHC `fn` normal(0, initializer_range),
/// norms and mHC scales 1, the rest 0; hash tables get distinct random experts per token. Every tensor is a function of
/// (seed, its name, element), whatever the number of threads. Matrices in `storage` (fp32 or bf16), the rest fp32.
Weights initialize_weights(const Config& config, uint64_t seed, at::ScalarType storage);

}  // namespace asterism::model
