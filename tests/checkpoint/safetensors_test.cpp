#include "asterism/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::error_of;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;

std::string file_bytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + data;
}

/// A malformed file and a part of the message that it must cause.
struct Malformed {
  std::string name;
  std::string bytes;
  std::string message;
};

std::string length_bytes(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof length};
}

const char* const kGood = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::vector<Malformed> malformed_files() {
  const std::string eight(8, '\0');
  const auto one = [&](const std::string& entry) { return file_bytes("{\"a\":" + entry + "}", eight); };
  const auto two = [](const std::string& first, const std::string& second, size_t data_bytes) {
    return file_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
                          R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}",
                      std::string(data_bytes, '\0'));
  };
  const std::string good = file_bytes(kGood, eight);
  return {
      {"Empty", "", "expected at least 8 bytes, found 0"},
      {"SevenBytes", "1234567", "expected at least 8 bytes, found 7"},
      {"HeaderLengthZero", length_bytes(0) + "{}", "header length at offset 0 is 0"},
      {"HeaderPastTheEnd", length_bytes(3) + "{}", "needs 3 bytes after offset 8, found 2"},
      {"HeaderOfHundredMegabytes", length_bytes(100'000'001) + "{}", "at most 100000000"},
      {"HeaderLengthAllOnes", length_bytes(~uint64_t{0}) + "{}", "at most 100000000"},
      {"HeaderCut", good.substr(0, 30), "the header needs"},
      {"NotJson", file_bytes("hello", eight), "not valid JSON at byte"},
      {"JsonCut", file_bytes(std::string(kGood).substr(0, 40), eight), "not valid JSON at byte"},
      {"TextAfterJson", file_bytes(std::string(kGood) + "x", eight), "not valid JSON at byte"},
      {"InvalidUtf8", file_bytes("{\"\xff\":{}}", ""), "not valid JSON at byte"},
      {"ArrayHeader", file_bytes("[]", ""), "expected a JSON object"},
      {"DuplicateName",
       file_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],)"
                  R"("data_offsets":[8,8]}})",
                  eight),
       "'a' appears twice"},
      {"DuplicateKeyInEntry", one(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"),
       "'shape' appears twice"},
      {"EntryNotObject", one("3"), "expected an object, found 3"},
      {"NoDtype", one(R"({"shape":[2],"data_offsets":[0,8]})"), "no 'dtype'"},
      {"NoShape", one(R"({"dtype":"F32","data_offsets":[0,8]})"), "no 'shape'"},
      {"NoOffsets", one(R"({"dtype":"F32","shape":[2]})"), "no 'data_offsets'"},
      {"ExtraKey", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"scale":1})"), "data_offsets only"},
      {"UnknownDtype", one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), R"(unknown dtype "F31")"},
      {"LowerCaseDtype", one(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"), "unknown dtype"},
      {"DtypeNotText", one(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})"), "expected a dtype name"},
      {"ShapeNotList", one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "expected a list of sizes"},
      {"NegativeSize", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "not negative"},
      {"TwoNegativeSizes", one(R"({"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]})"), "not negative"},
      {"FractionalSize", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "not negative"},
      {"SizeOf64Bits", one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"), "fit 63 bits"},
      {"ProductWraps", one(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})"), "overflows"},
      {"ProductOfElementsFitsButBytesWrap",
       one(R"({"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]})"), "overflows"},
      {"ProductBeyondAnyFile", one(R"({"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,8]})"),
       "overflows 60 bits"},
      {"ZeroHidesSizeBeyondAnyFile", one(R"({"dtype":"I8","shape":[0,4611686018427387904],"data_offsets":[0,0]})"),
       "overflows 60 bits"},
      {"ZeroHidesOverflow", one(R"({"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})"),
       "overflows"},
      {"SizeBeyond64Bits", one(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})"),
       "not negative"},
      {"SizeThatNoDoubleHolds", one(R"({"dtype":"F32","shape":[1e999],"data_offsets":[0,8]})"), "a double can hold"},
      {"DeepShape", one(R"({"dtype":"F32","shape":)" + std::string(5000, '[') + std::string(5000, ']') + "}"),
       "nested more than 64 deep"},
      {"OffsetsNotPair", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), "[begin, end]"},
      {"NegativeOffset", one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"), "[begin, end]"},
      {"BeginAfterEnd", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "begin <= end"},
      {"OutOfFile", one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "expected at most 8"},
      {"EndOf64Bits", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"),
       "expected at most 8"},
      {"TooFewBytes", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"), "need 4 bytes"},
      {"TooManyBytes", one(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"), "need 16 bytes"},
      {"ScalarOfEightBytes", one(R"({"dtype":"F32","shape":[],"data_offsets":[0,8]})"), "need 4 bytes"},
      {"Overlap", two("[0,8]", "[4,12]", 12), "they overlap 'a'"},
      {"SameBytesTwice", two("[0,8]", "[0,8]", 8), "they overlap 'a'"},
      {"HoleBetween", two("[0,8]", "[12,20]", 20), "they leave a hole after 'a'"},
      {"HoleAtTheStart", two("[4,12]", "[12,20]", 20), "they leave a hole after the header"},
      {"HoleAtTheEnd", two("[0,8]", "[8,16]", 20), "4 bytes follow the last tensor"},
      {"LastByteMissing", good.substr(0, good.size() - 1), "expected at most 7"},
      {"ByteAfterTheEnd", good + "x", "1 bytes follow the last tensor"},
      {"MetadataNotObject", file_bytes(R"({"__metadata__":3})", ""), "__metadata__"},
      {"MetadataNotText", file_bytes(R"({"__metadata__":{"format":3}})", ""), "expected text for 'format'"},
  };
}

class MalformedFile : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedFile, IsRefusedWithItsNameAndTheReason) {
  const TemporaryFolder folder;
  const auto path = folder.write("bad.safetensors", GetParam().bytes);
  const std::string message = error_of<InputError>([&] { SafetensorsFile::open(path); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_EQ(message.find(path.string()), 0U) << message;
}

INSTANTIATE_TEST_SUITE_P(Safetensors, MalformedFile, ::testing::ValuesIn(malformed_files()),
                         [](const auto& info) { return info.param.name; });

TEST(Safetensors, WhatIsFoundIsShownByItsBeginning) {
  const TemporaryFolder folder;
  const std::string name(100'000, 'n'), list(100'000, '1');
  const std::string entry =
      R"(":{"dtype":"F32","shape":[)" + list.substr(0, 15) + R"(],"data_offsets":[")" + list + "\"]}}";
  const auto path = folder.write("a.safetensors", file_bytes("{\"" + name + entry, ""));
  const std::string message = error_of<InputError>([&] { SafetensorsFile::open(path); });
  EXPECT_NE(message.find("(100000 bytes)"), std::string::npos) << message.substr(0, 2000);
  EXPECT_LT(message.size(), 2000U);
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = file_bytes(kGood, std::string(8, 'x'));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto path = folder.write("cut.safetensors", bytes.substr(0, size));
    EXPECT_THROW(SafetensorsFile::open(path), InputError) << size << " of " << bytes.size() << " bytes";
  }
  EXPECT_NE(SafetensorsFile::open(folder.write("whole.safetensors", bytes)).find("a"), nullptr);
}

TEST(Safetensors, EntriesNeedNotBeInTheOrderOfTheirBytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.safetensors", file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                                                             R"("b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                                                             "\x05\x06\x07"));
  const auto file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.view("b").item<int>(), 5);
  EXPECT_EQ(file.view("a")[1].item<int>(), 7);
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const TemporaryFolder folder;
  const auto file = SafetensorsFile::open(folder.write("a.safetensors", file_bytes("{}", "")));
  EXPECT_TRUE(file.tensors().empty());
}

at::Tensor some_bytes(int64_t count) {
  return at::arange(count, at::kLong).mul(37).remainder(251).to(at::kByte);
}

// Any bit pattern must survive, so tensors are compared as bytes (NaN differs from itself, float8 has no comparison).
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

class RoundTrip : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(RoundTrip, KeepsEveryBitShapeAndName) {
  const TemporaryFolder folder;
  const at::ScalarType dtype = GetParam();
  const int64_t width = static_cast<int64_t>(c10::elementSize(dtype));
  const at::Tensor matrix = dtype == at::kBool ? some_bytes(12).remainder(2).to(at::kBool).view({3, 4})
                                               : some_bytes(12 * width).view(dtype).view({3, 4});
  const at::Tensor scalar = matrix.flatten()[5], empty = matrix.narrow(0, 0, 0);
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"m", matrix}, {"s", scalar}, {"e", empty}});
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(same_bytes(file.view("m"), matrix));
  EXPECT_TRUE(same_bytes(file.copy("m"), matrix));
  EXPECT_TRUE(same_bytes(file.view("s"), scalar));
  EXPECT_EQ(file.view("e").sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(file.info("m").dtype, dtype);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

INSTANTIATE_TEST_SUITE_P(Safetensors, RoundTrip,
                         ::testing::Values(at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                                           at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e4m3fn,
                                           at::kFloat8_e8m0fnu),
                         [](const auto& info) { return safetensors_dtype_name(info.param); });

TEST(Safetensors, UnalignedForeignTensorsComeBackAsCopies) {
  const TemporaryFolder folder;
  const at::Tensor values = at::arange(3, at::kFloat).add(0.5F);
  const std::string data(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  for (int shift = 0; shift < 4; ++shift) {
    // A header of any length, as other programs write it, shifts the data.
    const std::string header = R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})" + std::string(shift, ' ');
    const auto path = folder.write("a.safetensors", file_bytes(header, data));
    const at::Tensor read = SafetensorsFile::open(path).view("a");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.const_data_ptr()) % alignof(float), 0U);
    EXPECT_TRUE(at::equal(read, values));
  }
}

TEST(Safetensors, AViewOutlivesTheFileObjectAndTheFile) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"a", at::arange(1000)}});
  at::Tensor row;
  {
    const auto file = SafetensorsFile::open(path);
    row = file.view("a").narrow(0, 990, 10);
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(at::equal(row, at::arange(990, 1000)));
}

TEST(Safetensors, ViewsShareTheMappingAndCopiesDoNot) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"a", at::arange(4)}});
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.view("a").const_data_ptr(), file.view("a").const_data_ptr());
  at::Tensor copy = file.copy("a");
  EXPECT_NE(copy.const_data_ptr(), file.view("a").const_data_ptr());
  copy.fill_(7);
  EXPECT_TRUE(at::equal(file.view("a"), at::arange(4)));
}

TEST(Safetensors, ABoolByteThatIsNeitherZeroNorOneIsRefused) {
  const TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const auto file = SafetensorsFile::open(folder.write("a.safetensors", file_bytes(header, "\x01\x02\x01")));
  EXPECT_THROW(file.view("a"), InputError);
  const std::string message = error_of<InputError>([&] { file.copy("a"); });
  EXPECT_NE(message.find("found 2 at offset " + std::to_string(8 + header.size() + 1)), std::string::npos) << message;
}

TEST(Safetensors, AMissingNameGetsTheNearestOne) {
  const auto file = SafetensorsFile::open(golden("hf/hf_unit/model.safetensors"));
  const std::string message = error_of<InputError>([&] { file.view("model.embed_token.weight"); });
  EXPECT_NE(message.find("the nearest is 'model.embed_tokens.weight'"), std::string::npos) << message;
}

TEST(Safetensors, WritesStridedViewsAndConvertsOnTheWay) {
  const TemporaryFolder folder;
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  write_safetensors(folder / "a.safetensors", {{"t", matrix.t()}, {"b", matrix, at::kBFloat16}});
  const auto file = SafetensorsFile::open(folder / "a.safetensors");
  EXPECT_TRUE(at::equal(file.view("t"), matrix.t()));
  EXPECT_TRUE(at::equal(file.view("b"), matrix.to(at::kBFloat16)));
}

TEST(Safetensors, AllTensorsOfAMixedFileAreAligned) {
  const TemporaryFolder folder;
  const at::Tensor byte = at::ones({3}, at::kByte), half = at::ones({3}, at::kHalf), wide = at::ones({3}, at::kLong);
  write_safetensors(folder / "a.safetensors", {{"a", byte}, {"b", half}, {"c", wide}, {"d", byte}, {"e", wide}});
  const auto file = SafetensorsFile::open(folder / "a.safetensors");
  for (const TensorInfo& info : file.tensors()) {
    EXPECT_EQ(info.offset % c10::elementSize(info.dtype), 0U) << info.name;
  }
}

TEST(Safetensors, RewritingAFileOfTheSafetensorsLibraryGivesItsBytes) {
  for (const char* name : {"hf/all_paths/model.safetensors", "hf/all_paths/lora/adapter_model.safetensors"}) {
    const TemporaryFolder folder;
    const auto file = SafetensorsFile::open(golden(name));
    std::vector<NamedTensor> tensors;
    for (const TensorInfo& info : file.tensors()) tensors.push_back({info.name, file.view(info.name)});
    std::reverse(tensors.begin(), tensors.end());
    write_safetensors(folder / "copy.safetensors", tensors);
    EXPECT_TRUE(read_text(folder / "copy.safetensors") == read_text(golden(name))) << name;
  }
}

TEST(Safetensors, AFullDiskIsAnError) {
  EXPECT_THROW(write_safetensors("/dev/full", {{"a", at::zeros({4})}}), RunError);
}

}  // namespace
}  // namespace asterism::checkpoint
