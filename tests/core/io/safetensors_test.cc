#include "core/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "core/io/file.h"
#include "core/io/tensor.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

std::string WithHeader(const std::string& json, const std::string& data = "") {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return bytes + json + data;
}

std::string ErrorOf(const std::string& bytes) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(bytes);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(file.status().message());
}

TensorView View(const HostTensor& tensor) {
  return {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes};
}

HostTensor Counting(Dtype dtype, Shape shape) {
  HostTensor tensor = HostTensor::Zeros(dtype, std::move(shape));
  for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(i * 7);
  return tensor;
}

void ExpectSame(const SafetensorsFile& file,
                const std::map<std::string, TensorView, std::less<>>& tensors) {
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, wanted] : tensors) {
    const absl::StatusOr<TensorView> found = file.Find(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->dtype, wanted.dtype);
    EXPECT_EQ(found->shape, wanted.shape);
    EXPECT_TRUE(std::ranges::equal(found->bytes, wanted.bytes)) << name;
  }
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const HostTensor f32 = Counting(Dtype::kF32, {2, 3}), f64 = Counting(Dtype::kF64, {3}),
                   f16 = Counting(Dtype::kF16, {5, 1}), u8 = Counting(Dtype::kU8, {7}),
                   i64 = Counting(Dtype::kI64, {}), none = Counting(Dtype::kF32, {0, 4});
  const std::map<std::string, TensorView, std::less<>> tensors = {
      {"a.weight", View(u8)}, {"b.\"quoted\"\\\n", View(f64)}, {"c", View(f16)},
      {"d", View(f32)},       {"scalar", View(i64)},           {"empty", View(none)}};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"\u00e9", "tab\t"}};
  const std::string bytes = SerializeSafetensors(tensors, metadata);

  absl::StatusOr<SafetensorsFile> parsed = SafetensorsFile::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ExpectSame(*parsed, tensors);
  EXPECT_EQ(parsed->metadata(), metadata);
  const SafetensorsFile moved = *std::move(parsed);
  ExpectSame(moved, tensors);

  const std::string path = ::testing::TempDir() + "/round_trip.safetensors";
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  const absl::StatusOr<SafetensorsFile> opened = SafetensorsFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ExpectSame(*opened, tensors);
  // Aligned to their elements, as a mapping of the file starts on a page.
  for (const auto& [name, view] : opened->tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.bytes.data()) % DtypeSize(view.dtype), 0u) << name;
  }
  EXPECT_EQ(SerializeSafetensors(opened->tensors(), opened->metadata()), bytes);
  std::filesystem::remove(path);
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  // Blanks, any order of keys, escapes, unsorted ranges.
  const std::string json =
      "{ \"b\" : {\"data_offsets\":[0,2], \"dtype\":\"U8\",\n\t\"shape\":[2]},"
      "\"\\u0061\\ud83d\\ude00\":{\"shape\":[1],\"dtype\":\"F16\",\"data_offsets\":[2,4]},"
      "\"__metadata__\":{\"k\\/\":\"v\\u00e9\"}}   ";
  const auto file = SafetensorsFile::Parse(WithHeader(json, "abcd"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Find("b")->bytes[1], std::byte{'b'});
  EXPECT_EQ(file->Find("a\xF0\x9F\x98\x80")->dtype, Dtype::kF16);
  EXPECT_EQ(file->metadata().at("k/"), "v\u00e9");
  EXPECT_TRUE(SafetensorsFile::Parse(WithHeader("{}")).ok());
}

TEST(Safetensors, AMissingTensorNamesThoseThatAreThere) {
  const auto file = SafetensorsFile::Parse(
      WithHeader(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  ASSERT_TRUE(file.ok());
  const absl::Status status = file->Find("v").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no tensor 'v'; there are w");
}

TEST(Safetensors, LiesAreRefused) {
  const auto one = [](const std::string& entry, const std::string& data) {
    return ErrorOf(WithHeader("{\"w\":" + entry + "}", data));
  };
  EXPECT_THAT(ErrorOf(""), HasSubstr("0 bytes"));
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(ErrorOf(std::string(8, '\xff') + "{}"), HasSubstr("header"));
  EXPECT_THAT(ErrorOf(WithHeader("{}").substr(0, 9)), HasSubstr("header"));
  std::string huge = WithHeader(std::string((16 << 20) + 1, ' '));
  EXPECT_THAT(ErrorOf(huge), HasSubstr("may have 16777216"));
  const std::string good = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_TRUE(SafetensorsFile::Parse(WithHeader("{\"w\":" + good + "}", "12345678")).ok());
  EXPECT_THAT(one(good, "1234567"), HasSubstr("need 8 bytes of data, the file has 7"));
  EXPECT_THAT(one(good, "123456789"), HasSubstr("need 8 bytes of data, the file has 9"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", "12345678"),
              HasSubstr("tensor 'w': data_offsets [0, 8] do not fit F32 [3]"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "12345678"),
              HasSubstr("do not fit"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", "12"), HasSubstr("hole"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[9223372036854775807,2],"data_offsets":[0,2]})", "12"),
              HasSubstr("do not fit"));
  EXPECT_THAT(one(R"({"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]})", ""),
              HasSubstr("do not fit"));
  EXPECT_THAT(one(R"({"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]})", "12"),
              HasSubstr("found F8_E4M3"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,2]})", "12"),
              HasSubstr("integer"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2.0]})", "12"), HasSubstr("']'"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[02],"data_offsets":[0,2]})", "12"),
              HasSubstr("integer"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,2]})", "12"),
              HasSubstr("integer"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[2]})", "12"), HasSubstr("each of dtype"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1})", "12"),
              HasSubstr("dtype, shape or data_offsets"));
  EXPECT_THAT(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0]})", "12"), HasSubstr("two"));
  EXPECT_THAT(one(R"({"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]})", "12"),
              HasSubstr("only once"));
}

TEST(Safetensors, RangesMayNotOverlapAndNamesMayNotRepeat) {
  const std::string u8x2 = R"({"dtype":"U8","shape":[2],"data_offsets":)";
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":" + u8x2 + "[0,2]},\"b\":" + u8x2 + "[1,3]}}", "123")),
              HasSubstr("overlap"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":" + u8x2 + "[0,2]},\"b\":" + u8x2 + "[3,5]}}", "12345")),
              HasSubstr("hole"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":" + u8x2 + "[0,2]},\"a\":" + u8x2 + "[2,4]}}", "1234")),
              HasSubstr("'a' only once"));
}

TEST(Safetensors, DamagedHeadersAreRefused) {
  for (const char* json : {"",
                           "[]",
                           "{",
                           "{\"a\"",
                           "{\"a\":",
                           "{\"a\":{",
                           "{\"a\":{}}",
                           "{} x",
                           "{\"a\\q\":{}}",
                           "{\"a\\u12\":{}}",
                           "{\"\\ud83d\":{}}",
                           "{\"\\ud83d\\u0041\":{}}",
                           "{\"\\udc00\":{}}",
                           "{\"a\nb\":{}}",
                           "{\"__metadata__\":{\"k\":1}}",
                           "{\"__metadata__\":[]}",
                           "{,}",
                           "{\"__metadata__\":{\"k\":\"v\",}}",
                           "{\"a\":null}",
                           "\"",
                           "{\"\\"}) {
    EXPECT_THAT(ErrorOf(WithHeader(json)), HasSubstr("expected")) << json;
  }
}

TEST(Safetensors, AnyDamageIsRefusedOrRead) {
  // Whatever a byte turns into, the parser neither crashes nor reads past the end (the sanitizer
  // build sees that), and a file cut short is never accepted.
  const HostTensor x = Counting(Dtype::kF32, {2, 2}), y = Counting(Dtype::kU8, {5});
  const std::string bytes = SerializeSafetensors({{"x", View(x)}, {"y", View(y)}}, {{"k", "v"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(SafetensorsFile::Parse(bytes.substr(0, size)).ok()) << size;
  }
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    refused += SafetensorsFile::Parse(damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 10000);
}

TEST(Safetensors, OpenSaysWhatIsWrongWithTheFile) {
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(SafetensorsFile::Open(folder + "/absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(SafetensorsFile::Open(folder).ok());
  const std::string path = folder + "/empty.safetensors";
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()), HasSubstr(path));
  std::filesystem::remove(path);
}

TEST(Safetensors, AFifoIsRefusedAndNotWaitedFor) {
  const std::string path = ::testing::TempDir() + "/fifo.safetensors";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()), HasSubstr(path));
  std::filesystem::remove(path);
}

TEST(Safetensors, WhatIsMistakenForOneIsNamed) {
  const auto refusal = [](std::string bytes) {
    return std::string(SafetensorsFile::Parse(std::move(bytes)).status().message());
  };
  EXPECT_NE(refusal("PK\x03\x04 and more").find("this is a zip"), std::string::npos);
  EXPECT_NE(refusal("version https://git-lfs.github.com/spec/v1\n").find("git lfs pull"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x02\x8a\x0al\xfc\x9c\x46").find("this is a pickle"), std::string::npos);
}

// Its length, little-endian, may begin with the bytes that begin a pickle.
TEST(Safetensors, AHeaderOfAnyLengthIsRead) {
  const std::string json = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  for (const size_t length : {size_t{0x80}, size_t{0x280}, size_t{0x8b1f}}) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(length & 0xff);
    bytes[1] = static_cast<char>(length >> 8);
    bytes += json + std::string(length - json.size(), ' ') + "x";
    EXPECT_TRUE(SafetensorsFile::Parse(bytes).ok()) << length;
  }
}

}  // namespace
}  // namespace hyperserve
