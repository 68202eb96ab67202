#pragma once

#include "asterism/model/weights.h"

namespace asterism::model {

/// Random weights as the published model is initialised: matrices, router and mHC `fn` normal(0, initializer_range),
/// norms and mHC scales 1, the rest 0; hash tables get distinct random experts per token. Every tensor is a function of
/// (seed, its name, element), whatever the number of threads. Matrices in `storage` (fp32 or bf16), the rest fp32.
///
/// The two functions give parts of a tensor, on the calling thread, for models that do not fit into memory.
Weights initialize_weights(const Config& config, uint64_t seed, at::ScalarType storage);

/// Elements first .. first + count - 1 of a floating tensor.
void initial_values(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t first, int64_t count,
                    float* out);

/// Rows first .. first + rows - 1 of a hash table.
void initial_table(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t first, int64_t rows,
                   int64_t* out);

}  // namespace asterism::model
