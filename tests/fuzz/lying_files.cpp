#include "tests/fuzz/lying_files.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::fuzz {
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

#if defined(__SANITIZE_ADDRESS__)
constexpr double kMaxSeconds = 10.0;
#else
constexpr double kMaxSeconds = 1.0;
#endif
constexpr size_t kMaxTensorBytes = 64 << 20;
constexpr size_t kMaxMessage = 20'000;

struct Width {
  const char* dtype;
  uint64_t bytes;
};
constexpr Width kWidths[] = {{"BF16", 2}, {"F32", 4}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I8", 1},  {"U8", 1},
                             {"I64", 8},  {"I32", 4}, {"F16", 2},     {"F64", 8},     {"I16", 2}, {"BOOL", 1}};

constexpr const char* kNames[] = {"a",
                                  "model.norm.weight",
                                  "layers.0.attn.wq_a.weight",
                                  "layers.0.attn.wq_a.scale",
                                  "layers.0.ffn.experts.0.w1.weight",
                                  "layers.0.ffn.experts.0.w1.scale",
                                  "mtp.0.e_proj.weight",
                                  "__metadata__",
                                  "",
                                  "\xEF\xBB\xBF",
                                  "a/b",
                                  "é\\u0000"};

constexpr const char* kHostileValues[] = {"0",
                                          "-1",
                                          "1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "1e9",
                                          "1000000001",
                                          "1.5",
                                          "9007199254740993",
                                          "4611686018427387904",
                                          "9223372036854775807",
                                          "null",
                                          "1e300",
                                          "1e999",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "true",
                                          "\"\"",
                                          "\"a\"",
                                          "-9223372036854775808",
                                          "[]",
                                          "{}",
                                          "[0]",
                                          "[[[[0]]]]",
                                          "{\"a\":{}}",
                                          "1e-320",
                                          "\"../a\"",
                                          "\"\\u0000\"",
                                          "128",
                                          "-0.0",
                                          "\"(a*)*b\"",
                                          "\"1e5\"",
                                          "[null]",
                                          "1000000000"};

std::string joined(const std::vector<uint64_t>& numbers) {
  std::string list;
  for (const uint64_t number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
  return "[" + list + "]";
}

std::string length_field(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof length};
}

std::string random_bytes(Dice& dice, uint64_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(dice.below(256));
  return bytes;
}

/// Numbers of a list as text, one replaced, or one more or less.
std::string other_list(Dice& dice, const std::string& list) {
  Json numbers = Json::parse(list, nullptr, /*allow_exceptions=*/false);
  if (!numbers.is_array() || numbers.empty() || dice.chance(0.2)) return hostile_value(dice);
  std::string text;
  const size_t changed = dice.below(numbers.size() + 1);
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += (text.empty() ? "" : ",") + (i == changed ? hostile_value(dice) : numbers[i].dump());
  }
  if (changed == numbers.size()) text += "," + hostile_value(dice);
  return "[" + text + "]";
}

/// Begin and end moved by some bytes: overlaps, holes, ends behind the file.
std::string moved(Dice& dice, const std::string& offsets) {
  const Json pair = Json::parse(offsets, nullptr, /*allow_exceptions=*/false);
  if (!pair.is_array() || pair.size() != 2) return offsets;
  if (!pair[0].is_number_unsigned() || !pair[1].is_number_unsigned()) return offsets;
  const int64_t by = dice.between(-9, 9), both = dice.chance(0.5) ? by : 0;
  return "[" + std::to_string(pair[0].get<int64_t>() + both) + "," + std::to_string(pair[1].get<int64_t>() + by) + "]";
}

void lie_about_entry(Dice& dice, LyingFile& file) {
  if (file.entries.empty()) return;
  LyingEntry& entry = file.entries[dice.below(file.entries.size())];
  switch (dice.below(10)) {
    case 0:
      entry.offsets = other_list(dice, entry.offsets);
      return;
    case 1:
      entry.offsets = moved(dice, entry.offsets);
      return;
    case 2:
      entry.shape = other_list(dice, entry.shape);
      return;
    case 3:
      entry.shape = "[" + std::string(dice.chance(0.5) ? "0," : "") + "4294967296,4294967296,2]";
      return;
    case 4:
      entry.dtype = dice.chance(0.5) ? "\"" + std::string(dice.pick(kWidths).dtype) + "\"" : hostile_value(dice);
      return;
    case 5:
      file.entries.push_back(LyingEntry(entry));
      return;
    case 6:
      entry.more += ",\"" + std::string(dice.chance(0.5) ? "shape" : "more") + "\":" + hostile_value(dice);
      return;
    case 7:
      entry.name = dice.chance(0.1) ? std::string(200'000, 'x') : dice.pick(kNames);
      return;
    case 8: {  // as many sizes as fit into a header of a megabyte
      entry.shape = "[";
      for (uint64_t i = dice.below(100'000); i > 0; --i) entry.shape += "1,";
      entry.shape += "1]";
      return;
    }
    default:
      std::string& field = dice.chance(0.5) ? entry.shape : entry.dtype;
      field = std::string(dice.below(100'000), '[') + field;
      return;
  }
}

Json parsed_or_text(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

void lie_once(Dice& dice, Json& value) {
  if (!value.is_structured() || value.empty() || dice.chance(0.05)) {
    value = parsed_or_text(hostile_value(dice));
    return;
  }
  auto child = value.begin();
  std::advance(child, static_cast<int64_t>(dice.below(value.size())));
  const uint64_t what = dice.below(10);
  if (what == 0) {
    value.erase(child);
  } else if (what == 1) {
    const Json copy = *child;
    if (value.is_array()) value.push_back(copy);
    if (value.is_object()) value["another"] = copy;
  } else {
    lie_once(dice, *child);
  }
}

/// Refuses what no file of a test needs. Memory that is never touched would pass unseen otherwise.
class BoundedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > kMaxTensorBytes) throw std::runtime_error(text("a tensor of ", bytes, " bytes was asked for"));
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

class BoundedTensors {
 public:
  BoundedTensors() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(&allocator_, 1); }
  ~BoundedTensors() { c10::SetCPUAllocator(before_, 1); }

 private:
  BoundedAllocator allocator_;
  c10::Allocator* before_;
};

}  // namespace

std::string LyingFile::bytes() const {
  std::string header = "{\"__metadata__\":" + metadata;
  for (const LyingEntry& entry : entries) {
    header += ",\"" + entry.name + "\":{\"dtype\":" + entry.dtype + ",\"shape\":" + entry.shape +
              ",\"data_offsets\":" + entry.offsets + entry.more + "}";
  }
  header += "}";
  return length_field(header.size()) + header + data;
}

LyingFile valid_file(Dice& dice) {
  LyingFile file;
  for (uint64_t i = 0; i < dice.below(6); ++i) {
    const Width& width = dice.pick(kWidths);
    std::vector<uint64_t> shape;
    uint64_t bytes = width.bytes;
    for (uint64_t d = 0; d < dice.below(4); ++d) {
      shape.push_back(dice.below(6));
      bytes *= shape.back();
    }
    const uint64_t begin = file.data.size();
    file.data += random_bytes(dice, bytes);
    file.entries.push_back({"t" + std::to_string(i), "\"" + std::string(width.dtype) + "\"", joined(shape),
                            joined({begin, begin + bytes})});
  }
  return file;
}

std::string lying_bytes(Dice& dice, LyingFile file) {
  std::string bytes;
  for (uint64_t lies = dice.below(3); lies > 0; --lies) lie_about_entry(dice, file);
  if (dice.chance(0.1)) file.metadata = hostile_value(dice);
  if (dice.chance(0.1)) std::reverse(file.entries.begin(), file.entries.end());
  bytes = file.bytes();
  switch (dice.below(8)) {
    case 0: {
      const uint64_t length = bytes.size() - file.data.size() - 8;
      const uint64_t lengths[] = {0,
                                  1,
                                  2,
                                  length - 1,
                                  length + 1,
                                  bytes.size() - 8,
                                  bytes.size(),
                                  100'000'000,
                                  100'000'001,
                                  uint64_t{1} << 63,
                                  ~uint64_t{0},
                                  ~uint64_t{0} - 7};
      return length_field(dice.pick(lengths)) + bytes.substr(8);
    }
    case 1:
      return bytes.substr(0, dice.chance(0.5) ? bytes.size() - 1 : dice.below(bytes.size()));
    case 2:
      return bytes + random_bytes(dice, 1 + dice.below(20));
    case 3:
      return mutated(dice, bytes, {});
    default:
      return bytes;
  }
}

std::string hostile_value(Dice& dice) {
  return dice.pick(kHostileValues);
}

void lie_in(Dice& dice, Json& tree) {
  for (uint64_t lies = 1 + dice.below(3); lies > 0; --lies) lie_once(dice, tree);
}

std::string lying_json(Dice& dice, const Json& tree) {
  if (dice.chance(0.3)) return mutated(dice, tree.dump(), {});
  if (dice.chance(0.02)) return std::string(500'000, dice.chance(0.5) ? '[' : '9');
  Json changed = tree;
  lie_in(dice, changed);
  return changed.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void replace_file(Dice& dice, const fs::path& file) {
  const fs::path real = fs::is_symlink(file) ? fs::read_symlink(file) : file;
  const std::string content = read_text(real);
  fs::remove(file);
  const auto write = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  switch (dice.below(11)) {
    case 0:
      return;
    case 1:
      fs::create_directory(file);
      return;
    case 2:
      ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
      return;
    case 3:
      fs::create_symlink(dice.chance(0.5) ? "/dev/zero" : "/dev/null", file);
      return;
    case 4:
      fs::create_symlink(file, file);
      return;
    case 5:
      fs::create_symlink(file.string() + ".nothing", file);
      return;
    case 6:
      return write("");
    case 7:
      return write(content.substr(0, content.size() - std::min<size_t>(content.size(), 1)));
    case 8:
      return write(content + random_bytes(dice, 1 + dice.below(9)));
    case 9:
      return write(mutated(dice, content, {}));
    default: {
      const fs::path elsewhere = file.string() + ".elsewhere";
      std::ofstream(elsewhere, std::ios::binary) << content;
      fs::create_symlink(elsewhere.filename(), file);
    }
  }
}

bool is_accepted(const fs::path& folder, const std::function<void()>& action) {
  const BoundedTensors bounded;
  const std::clock_t begin = std::clock();  // of the processor: other work on the machine does not count
  bool accepted = false;
  try {
    action();
    accepted = true;
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(folder.string()), std::string::npos) << "expected the file: " << message;
    EXPECT_LE(message.size(), kMaxMessage) << message.substr(0, 500);
  }
  EXPECT_LE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kMaxSeconds) << (accepted ? "" : "refused");
  return accepted;
}

void expect_inside(const checkpoint::Source& source) {
  for (const std::string& name : source.names()) {
    const checkpoint::TensorInfo& info = source.info(name);
    const uint64_t size = fs::file_size(source.file_of(name));
    ASSERT_GE(info.offset, 8U) << name;
    ASSERT_LE(info.bytes, size) << name;
    ASSERT_LE(info.offset, size - info.bytes) << name;
    const at::Tensor tensor = source.tensor(name);
    ASSERT_EQ(tensor.sizes(), at::IntArrayRef(info.shape));
    ASSERT_EQ(tensor.nbytes(), info.bytes) << name;
    const auto* data = static_cast<const volatile char*>(tensor.const_data_ptr());
    for (uint64_t i = 0; i < info.bytes; ++i) (void)data[i];
  }
}

}  // namespace asterism::fuzz
