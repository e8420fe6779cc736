#include "core/io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/io/idx.h"
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/io/write_failure.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/file_test-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    return Path(name);
  }
  size_t FilesInFolder() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  std::string folder_;
};

// As gzip (window_bits 31) or zlib (15) writes it.
std::string Compress(const std::string& plain, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(plain.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(FileTest, WhatIsWrittenIsRead) {
  const std::string bytes("\0binary\xff\n", 9);
  const std::string path = Write("a", bytes);
  EXPECT_EQ(*ReadFile(path, 9), bytes);
  EXPECT_TRUE(WriteFileAtomically(path, "shorter").ok());
  EXPECT_EQ(*ReadFile(path, 100), "shorter");
  EXPECT_EQ(*ReadFile(Write("empty", ""), 0), "");
  EXPECT_EQ(FilesInFolder(), 2u) << "a temporary file was left";
}

TEST_F(FileTest, ReadingFailsInWords) {
  EXPECT_EQ(ReadFile(Path("absent"), 10).status().code(), absl::StatusCode::kNotFound);
  const absl::Status large = ReadFile(Write("large", std::string(11, 'x')), 10).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(large.message()), HasSubstr("11 bytes, the limit is 10 bytes"));
  EXPECT_EQ(ReadFile(folder_, 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, AFifoIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  const absl::Status refused = ReadFile(Path("fifo"), 10).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("not a regular file"));
}

TEST_F(FileTest, APipeIsWrittenToAndStaysOne) {
  const std::string path = Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(WriteFileAtomically(path, "x").ok()) << "nobody reads";
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WriteFileAtomically(path, "ports").ok());
  std::string got(10, '\0');
  EXPECT_EQ(read(reader, got.data(), got.size()), 5);
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(FilesInFolder(), 1u);
  EXPECT_FALSE(WriteFileAtomically(folder_, "x").ok()) << "a folder is no file";
}

TEST_F(FileTest, WritingIntoAFolderThatIsNotThereFails) {
  EXPECT_FALSE(WriteFileAtomically(Path("absent/file"), "x").ok());
}

TEST_F(FileTest, AReaderNeverSeesHalfAFile) {
  const std::string path = Write("shared", std::string(100000, 'a'));
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(WriteFileAtomically(path, std::string(100000, i % 2 == 0 ? 'b' : 'a')).ok());
    }
  });
  for (int i = 0; i < 200; ++i) {
    const absl::StatusOr<std::string> bytes = ReadFile(path, 1 << 20);
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(bytes->size(), 100000u);
    EXPECT_EQ(bytes->find_first_not_of((*bytes)[0]), std::string::npos);
  }
  writer.join();
}

TEST(Sha256, KnownAnswers) {
  // FIPS 180-4.
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256("abc").size(), 32u);
  EXPECT_EQ(static_cast<unsigned char>(Sha256("abc")[0]), 0xba);
}

TEST(Gunzip, GzipAndZlib) {
  const std::string plain = std::string(300000, 'x') + "end";
  for (const int window_bits : {31, 15}) {
    const std::string compressed = Compress(plain, window_bits);
    EXPECT_EQ(*Gunzip(compressed, 1 << 20), plain);
    EXPECT_EQ(*Gunzip(compressed, 300003), plain);
    EXPECT_THAT(std::string(Gunzip(compressed, 300002).status().message()),
                HasSubstr("more than the limit of 300002"));
    for (const size_t size : {size_t{0}, size_t{5}, compressed.size() - 1}) {
      EXPECT_EQ(Gunzip(compressed.substr(0, size), 1 << 20).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
    EXPECT_FALSE(Gunzip(compressed + "x", 1 << 20).ok());
    std::string damaged = compressed;
    damaged[damaged.size() / 2] ^= 0x55;
    EXPECT_FALSE(Gunzip(damaged, 1 << 20).ok());
  }
  EXPECT_FALSE(Gunzip("not compressed at all", 100).ok());
}

TEST_F(FileTest, IdxPlainAndCompressed) {
  const std::string header("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03", 16);
  const std::string idx = header + "abcdef";
  for (const std::string& bytes : {idx, Compress(idx, 31)}) {
    const absl::StatusOr<RowsFile> images = ReadRows(Write("images", bytes), "");
    ASSERT_TRUE(images.ok()) << images.status();
    EXPECT_EQ(images->rows.dtype, Dtype::kU8);
    EXPECT_EQ(images->rows.shape, (Shape{2, 1, 3}));
    EXPECT_EQ(images->rows.as<uint8_t>()[5], 'f');
  }
  const std::string labels("\0\0\x08\x01\0\0\0\x02\x07\x09", 10);
  EXPECT_EQ(ReadRows(Write("labels", labels), "")->rows.shape, (Shape{2}));
}

TEST(ParseIdx, DamagedIsRefused) {
  const std::vector<std::string> damaged = {
      "",
      std::string("\0\0\x08", 3),
      std::string("\0\1\x08\x01\0\0\0\x00", 8),
      std::string("\0\0\x0b\x01\0\0\0\x00", 8),               // shorts
      std::string("\0\0\x0d\x01\0\0\0\x01\0\0\0", 11),        // a float cut off
      std::string("\0\0\x08\x00", 4),                         // no dimension
      std::string("\0\0\x08\x03\0\0\0\x02", 8),               // dimensions cut off
      std::string("\0\0\x08\x01\0\0\0\x02\x07", 9),           // data cut off
      std::string("\0\0\x08\x01\0\0\0\x02\x07\x08\x09", 11),  // data left over
      std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16)};
  for (const std::string& bytes : damaged) {
    EXPECT_EQ(ParseIdx(bytes).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Tensor, NamesSizesAndShapes) {
  for (const DtypeEntry& entry : kDtypes) {
    const Dtype dtype = entry.dtype;
    EXPECT_EQ(DtypeFromName(DtypeName(dtype)), dtype);
  }
  EXPECT_EQ(DtypeFromName("f32"), std::nullopt);
  EXPECT_EQ(DtypeSize(Dtype::kF16), 2u);
  EXPECT_EQ(ShapeText({64, 1, 28}), "[64, 1, 28]");
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({3, 0, 5}), 0);
  EXPECT_EQ(ElementCount({3, -1}), std::nullopt);
  EXPECT_EQ(ElementCount({int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  const HostTensor zeros = HostTensor::Zeros(Dtype::kF64, {2, 3});
  EXPECT_EQ(zeros.elements(), 6);
  EXPECT_EQ(zeros.as<double>()[5], 0.0);
}

TEST(WriteFailure, AFolderThatCannotBeWrittenIsNoFaultOfTheRequestOrTheProgram) {
  for (const int error : {ENOSPC, EDQUOT, EROFS, EACCES, EPERM}) {
    const absl::Status status = WriteFailure(error, "/models/m", "create");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << error;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/models/m: cannot create: "));
  }
  EXPECT_EQ(WriteFailure(ENOENT, "x", "create").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WriteFailure(EIO, "x", "sync").code(), absl::ErrnoToStatusCode(EIO));
}

}  // namespace
}  // namespace hyperserve
