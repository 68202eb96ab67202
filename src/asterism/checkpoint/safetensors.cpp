#include "asterism/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "asterism/core/error.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

// The limit of the safetensors library: a corrupt length must not make us parse gigabytes.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kLengthBytes = 8;

struct Dtype {
  const char* name;
  at::ScalarType type;
};

// In the order in which the safetensors library ranks types when it writes a file, narrow to wide.
constexpr std::array<Dtype, 12> kDtypes = {{
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"I16", at::kShort},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"F32", at::kFloat},
    {"F64", at::kDouble},
    {"I64", at::kLong},
}};

size_t rank_of(at::ScalarType type) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].type == type) return i;
  }
  TORCH_CHECK(false, "[safetensors] a tensor of this dtype cannot be written, got ", type);
}

std::string dtype_list() {
  std::string names;
  for (const Dtype& dtype : kDtypes) names += (names.empty() ? "" : " ") + std::string(dtype.name);
  return names;
}

// The product of a tensor's sizes and its width: far from where sums of a few sizes would overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 60;

constexpr const char* kHint = "; the download is incomplete or the file is corrupt";

/// What the entry of one tensor is checked against, and where it stands for errors.
struct HeaderContext {
  std::string file;
  uint64_t data_start = 0;
  uint64_t data_bytes = 0;
};

std::string shown(const Json& value) {
  return shortened(value.dump());
}

template <typename... Parts>
[[noreturn]] void entry_error(const HeaderContext& context, const std::string& name, const Parts&... parts) {
  input_error(context.file, ": tensor '", shortened(name), "': ", parts..., kHint);
}

at::ScalarType parse_dtype(const HeaderContext& context, const std::string& name, const Json& value) {
  if (!value.is_string()) entry_error(context, name, "expected a dtype name, found ", shown(value));
  for (const Dtype& dtype : kDtypes) {
    if (value.get_ref<const std::string&>() == dtype.name) return dtype.type;
  }
  input_error(context.file, ": tensor '", shortened(name), "': unknown dtype ", shown(value), ", expected one of ",
              dtype_list());
}

std::vector<int64_t> parse_shape(const HeaderContext& context, const std::string& name, const Json& value) {
  if (!value.is_array()) entry_error(context, name, "expected a list of sizes, found shape ", shown(value));
  std::vector<int64_t> shape;
  for (const Json& size : value) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
      entry_error(context, name, "expected sizes that are not negative and fit 63 bits, found shape ", shown(value));
    }
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// Bytes of the tensor. The product leaves out zeros, so that a zero cannot hide sizes whose strides would overflow.
uint64_t checked_bytes(const HeaderContext& context, const TensorInfo& info, const Json& shape) {
  int64_t product = static_cast<int64_t>(c10::elementSize(info.dtype));
  bool empty = false;
  for (const int64_t size : info.shape) {
    empty |= size == 0;
    if (size != 0 && (__builtin_mul_overflow(product, size, &product) || product > kMaxTensorBytes)) {
      entry_error(context, info.name, "the number of bytes of shape ", shown(shape), " overflows 60 bits");
    }
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

TensorInfo parse_entry(const HeaderContext& context, const std::string& name, const Json& entry) {
  if (!entry.is_object()) entry_error(context, name, "expected an object, found ", shown(entry));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) entry_error(context, name, "the header entry has no '", key, "'");
  }
  if (entry.size() != 3) {
    entry_error(context, name, "expected dtype, shape and data_offsets only, found ", shown(entry));
  }
  TensorInfo info{.name = name,
                  .dtype = parse_dtype(context, name, entry["dtype"]),
                  .shape = parse_shape(context, name, entry["shape"])};
  const Json& offsets = entry["data_offsets"];
  const bool pair =
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  if (!pair) entry_error(context, name, "expected data_offsets [begin, end], found ", shown(offsets));
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end) entry_error(context, name, "expected begin <= end, found data_offsets ", shown(offsets));
  if (end > context.data_bytes) {
    entry_error(context, name, "the data end at offset ", end, " of the data section, expected at most ",
                context.data_bytes, " (the end of the file)");
  }
  info.offset = context.data_start + begin;
  info.bytes = end - begin;
  const uint64_t expected = checked_bytes(context, info, entry["shape"]);
  if (info.bytes != expected) {
    entry_error(context, name, "dtype ", shown(entry["dtype"]), " and shape ", shown(entry["shape"]), " need ",
                expected, " bytes, found data_offsets ", shown(offsets), " (", info.bytes, " bytes)");
  }
  return info;
}

std::map<std::string, std::string> parse_metadata(const HeaderContext& context, const Json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) input_error(context.file, ": __metadata__: expected an object, found ", shown(value), kHint);
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string()) {
      input_error(context.file, ": __metadata__: expected text for '", shortened(key), "', found ", shown(item), kHint);
    }
    metadata[key] = item.get<std::string>();
  }
  return metadata;
}

// Tensors sorted by offset must fill the data section from its first byte to its last.
void check_tiling(const HeaderContext& context, const std::vector<TensorInfo>& tensors) {
  uint64_t next = context.data_start;
  const std::string* previous = nullptr;
  for (const TensorInfo& info : tensors) {
    if (info.offset != next) {
      entry_error(context, info.name, "the data start at byte ", info.offset, " of the file, expected ", next,
                  info.offset < next ? " (they overlap " : " (they leave a hole after ",
                  previous == nullptr ? "the header" : "'" + shortened(*previous) + "'", ")");
    }
    next += info.bytes;
    previous = &info.name;
  }
  const uint64_t end = context.data_start + context.data_bytes;
  if (next != end) {
    input_error(context.file, ": ", end - next, " bytes follow the last tensor, expected the file to end at byte ",
                next, ", found ", end, kHint);
  }
}

uint64_t read_header_length(const MappedFile& file) {
  const std::string path = file.path().string();
  if (file.size() < kLengthBytes) {
    input_error(path, ": expected at least ", kLengthBytes, " bytes, found ", file.size(), kHint);
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length == 0) input_error(path, ": the header length at offset 0 is 0", kHint);
  if (length > kMaxHeaderBytes) {
    input_error(path, ": the header length at offset 0 is ", length, ", expected at most ", kMaxHeaderBytes,
                "; this is not a safetensors file or it is corrupt");
  }
  if (length > file.size() - kLengthBytes) {
    input_error(path, ": the header needs ", length, " bytes after offset 8, found ", file.size() - kLengthBytes,
                kHint);
  }
  return length;
}

bool is_aligned(const std::byte* data, at::ScalarType dtype) {
  return reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) == 0;
}

void check_bool_bytes(const fs::path& path, const TensorInfo& info, const std::byte* data) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(data);
  const auto* wrong = std::find_if(bytes, bytes + info.bytes, [](uint8_t byte) { return byte > 1; });
  if (wrong == bytes + info.bytes) return;
  input_error(path.string(), ": tensor '", info.name, "': expected BOOL bytes 0 or 1, found ", static_cast<int>(*wrong),
              " at offset ", info.offset + (wrong - bytes), kHint);
}

void write_stretches(FileWriter& writer, const NamedTensor& tensor) {
  constexpr int64_t kStretch = 1 << 20;
  TORCH_CHECK(tensor.read, "[safetensors] ", tensor.name, " has no values");
  const int64_t elements = tensor.tensor.numel();
  for (int64_t begin = 0; begin < elements; begin += kStretch) {
    const at::Tensor values = at::empty({std::min(kStretch, elements - begin)}, tensor.tensor.scalar_type());
    tensor.read(begin, values);
    const at::Tensor stored = values.to(tensor.stored_dtype());
    writer.write(stored.const_data_ptr(), stored.nbytes());
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const fs::path& path) {
  SafetensorsFile result;
  result.file_ = MappedFile::open(path);
  const MappedFile& file = *result.file_;
  const uint64_t length = read_header_length(file);
  HeaderContext context{.file = path.string(), .data_start = kLengthBytes + length};
  context.data_bytes = file.size() - context.data_start;
  const Json header = parse_strict_json(file.text().substr(kLengthBytes, length), context.file + ": header");
  if (!header.is_object()) input_error(context.file, ": header: expected a JSON object", kHint);

  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      result.metadata_ = parse_metadata(context, entry);
    } else {
      result.tensors_.push_back(parse_entry(context, name, entry));
    }
  }
  // Empty tensors come before the one that starts at the same byte.
  std::stable_sort(result.tensors_.begin(), result.tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  check_tiling(context, result.tensors_);
  for (size_t i = 0; i < result.tensors_.size(); ++i) result.index_[result.tensors_[i].name] = i;
  return result;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const TensorInfo* found = find(name);
  if (found != nullptr) return *found;
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  const std::string nearest = nearest_name(name, names);
  input_error(path().string(), ": has no tensor '", shortened(name), "'",
              nearest.empty() ? "" : "; the nearest is '" + nearest + "'");
}

void SafetensorsFile::release(const at::Tensor& view) const {
  if (view.is_contiguous()) file_->release(view.const_data_ptr(), view.nbytes());
}

at::Tensor SafetensorsFile::view(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  const auto options = at::TensorOptions().dtype(tensor.dtype);
  if (tensor.bytes == 0) return at::empty(tensor.shape, options);
  const std::byte* data = file_->data() + tensor.offset;
  if (!is_aligned(data, tensor.dtype)) return copy(name);
  if (tensor.dtype == at::kBool) check_bool_bytes(path(), tensor, data);
  // The deleter holds the mapping until the last view is gone.
  return at::from_blob(
      const_cast<std::byte*>(data), tensor.shape, [file = file_](void*) {}, options);
}

at::Tensor SafetensorsFile::copy(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  const std::byte* data = file_->data() + tensor.offset;
  if (tensor.dtype == at::kBool) check_bool_bytes(path(), tensor, data);
  at::Tensor result = at::empty(tensor.shape, at::TensorOptions().dtype(tensor.dtype));
  if (tensor.bytes > 0) std::memcpy(result.mutable_data_ptr(), data, tensor.bytes);
  return result;
}

uint64_t NamedTensor::stored_bytes() const {
  return static_cast<uint64_t>(tensor.numel()) * c10::elementSize(stored_dtype());
}

std::string plan_safetensors(std::vector<PlannedTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    const size_t rank_a = rank_of(a.dtype), rank_b = rank_of(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  // Text, not a JSON object: that would sort the entries, and an ordered one takes quadratic time for many names.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string> names;
  uint64_t end = 0;
  for (PlannedTensor& tensor : tensors) {
    TORCH_CHECK(names.insert(tensor.name).second, "[safetensors] names must differ, got '", tensor.name, "' twice");
    tensor.offset = end;
    end += tensor.bytes;
    header += text(",", Json(tensor.name).dump(), R"(:{"dtype":")", safetensors_dtype_name(tensor.dtype),
                   R"(","shape":)", Json(tensor.shape).dump(), R"(,"data_offsets":[)", tensor.offset, ",", end, "]}");
  }
  header += "}";
  header.append((kLengthBytes - header.size() % kLengthBytes) % kLengthBytes, ' ');
  const uint64_t length = header.size();
  for (PlannedTensor& tensor : tensors) tensor.offset += kLengthBytes + length;
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + header;
}

void write_safetensors(const fs::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<PlannedTensor> planned;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    planned.push_back({tensor.name, tensor.stored_dtype(), tensor.tensor.sizes().vec(), tensor.stored_bytes()});
    by_name[tensor.name] = &tensor;
  }
  FileWriter writer(path);
  writer.write(plan_safetensors(planned));
  for (const PlannedTensor& next : planned) {
    const NamedTensor& tensor = *by_name.at(next.name);
    if (tensor.tensor.is_meta()) {
      write_stretches(writer, tensor);
      continue;
    }
    const at::Tensor dense = tensor.tensor.detach().to(at::kCPU, next.dtype).contiguous();
    writer.write(dense.const_data_ptr(), dense.nbytes());
  }
  writer.close();
}

std::string safetensors_dtype_name(at::ScalarType dtype) {
  return kDtypes[rank_of(dtype)].name;
}

}  // namespace asterism::checkpoint
