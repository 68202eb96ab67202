#include "tests/support/packed_weights.h"

#include <cmath>

#include "asterism/core/rng.h"

namespace asterism::testing {

namespace {

at::Tensor random_bytes(const std::vector<int64_t>& sizes, const std::string& name, int64_t low, int64_t high) {
  at::Tensor bytes = at::empty(sizes, at::kByte);
  const RandomStream stream(3, name);
  auto* out = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    out[i] = static_cast<uint8_t>(low + static_cast<int64_t>(stream.below(high - low, i)));
  }
  return bytes;
}

}  // namespace

ops::PackedMatrix random_packed(Packing packing, at::IntArrayRef sizes, const std::string& name, int64_t parts) {
  std::vector<int64_t> codes = sizes.vec(), scales = sizes.vec();
  const int64_t rows = codes.end()[-2], columns = codes.back();
  const auto exponent = 127 - std::lround(std::log2(static_cast<double>(columns)) / 2);
  if (packing == Packing::kFp4) {
    codes.back() = columns / 2;
    scales.back() = columns / 32;
    return ops::make_packed(ops::PackedFormat::kFp4, random_bytes(codes, name + ".codes", 0, 256),
                            random_bytes(scales, name + ".scales", exponent - 4, exponent), parts);
  }
  const auto blocks = [](int64_t length) { return (length + 127) / 128; };
  scales.end()[-2] = parts * blocks(rows / parts);
  scales.back() = blocks(columns);
  // Codes 0x7F and 0xFF are NaN: seven bits below 0x7F, and the sign.
  const at::Tensor magnitudes = random_bytes(codes, name + ".codes", 0, 0x7F);
  const at::Tensor signs = random_bytes(codes, name + ".signs", 0, 2) * 128;
  at::Tensor scale = random_bytes(scales, name + ".scales", exponent - 8, exponent - 4);
  if (packing == Packing::kFp8WideScales) scale = (scale.to(at::kFloat) - 127.3F).exp2();
  return ops::make_packed(ops::PackedFormat::kFp8, magnitudes + signs, scale, parts);
}

void pack_model(model::Model& model) {
  model::for_each_projection(model.config, model.weights, [](const model::TensorSpec& spec, model::Projection& p) {
    const at::Tensor w = p.weight.plain.to(at::kFloat);
    const bool experts = spec.shape.size() == 3;
    const int64_t parts = spec.name.ends_with("gate_up_proj") ? 2 : 1;
    p.weight = ops::pack(w, experts ? ops::PackedFormat::kFp4 : ops::PackedFormat::kFp8, at::kByte, parts);
  });
}

void unpack_model(model::Model& model) {
  model::for_each_projection(model.config, model.weights, [](const model::TensorSpec&, model::Projection& p) {
    p.weight = p.weight.to(at::kFloat);
  });
}

}  // namespace asterism::testing
