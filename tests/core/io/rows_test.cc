#include "core/io/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <utility>

#include "core/io/csv.h"
#include "core/io/file.h"
#include "core/io/idx.h"
#include "core/io/npy.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string Words(const absl::Status& status) { return std::string(status.message()); }

HostTensor Numbers(int64_t rows, int64_t columns) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, {rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) tensor.as<double>()[i] = static_cast<double>(i);
  return tensor;
}

// A file as numpy.save writes it, version 1.
std::string Npy(const std::string& descr, const std::string& order, const std::string& shape,
                const std::string& data) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string bytes(kNpyMagic);
  bytes += std::string("\x01\x00", 2);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}

template <class T>
std::string BytesOf(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string Reversed(std::string bytes) { return {bytes.rbegin(), bytes.rend()}; }

class RowsTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = testing::TempDir() + "rows_" + name;
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return path;
  }
  std::vector<double> Read(const std::string& name, const std::string& bytes) const {
    const auto file = ReadRows(Write(name, bytes), "");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? AsDoubles(file->rows.view()) : std::vector<double>();
  }
};

TEST(ParseCsv, SkipsAHeaderAndKeepsAllDigits) {
  const auto csv = ParseCsv("x0,x1\n0.1, -2\n3e-300,4\n\n");
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_THAT(csv->names, ElementsAre("x0", "x1"));
  EXPECT_EQ(csv->rows.shape, Shape({2, 2}));
  EXPECT_THAT(csv->rows.as<double>(), ElementsAre(0.1, -2, 3e-300, 4));
  EXPECT_EQ(ParseCsv("\xef\xbb\xbf"
                     "1,2\n3,4\n")
                ->rows.shape,
            Shape({2, 2}))
      << "a byte-order mark";
}

TEST(ParseCsv, TakesTheUsualSeparators) {
  for (const char* text : {"1,2.5\n-3,4\n", "1;2.5\r\n-3; 4\r\n", "1\t2.5\n-3\t4",
                           " 1  2.5\n-3 4\n", "a;b\n1;2.5\n-3;4\n", "a b\n1 2.5\n-3 4\n",
                           "# by numpy.savetxt\n1e0 2.5E0\n-3 4\n", "x,y\n1,2.5\n\n-3,4\n"}) {
    const auto csv = ParseCsv(text);
    ASSERT_TRUE(csv.ok()) << text << csv.status();
    EXPECT_EQ(csv->rows.shape, Shape({2, 2})) << text;
    EXPECT_THAT(csv->rows.as<double>(), ElementsAre(1, 2.5, -3, 4)) << text;
  }
}

TEST(ParseCsv, NamesTheLineThatIsWrong) {
  EXPECT_THAT(Words(ParseCsv("1,2\n3\n").status()),
              HasSubstr("line 2 has 1 number, the ones before have 2"));
  EXPECT_THAT(Words(ParseCsv("1,x\n3,4\n").status()), HasSubstr("line 1 is not numbers"))
      << "a slip, not a header";
  EXPECT_THAT(Words(ParseCsv("1,2\n3,four\n").status()), HasSubstr("line 2 is not numbers"));
  EXPECT_THAT(Words(ParseCsv("1;2\n3,4\n").status()), HasSubstr("line 2 is not numbers"));
  EXPECT_THAT(Words(ParseCsv("1,2,\n").status()), HasSubstr("line 1 is not numbers"));
}

TEST(ParseNpy, KeepsTypesAndOrders) {
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const auto plain = ParseNpy(Npy("<f4", "False", "(2, 3)", BytesOf(floats)));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->dtype, Dtype::kF32);
  EXPECT_EQ(plain->shape, Shape({2, 3}));
  EXPECT_THAT(plain->as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  // The same array, its first index running fastest.
  const auto fortran = ParseNpy(Npy("<f4", "True", "(2, 3)", BytesOf<float>({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(fortran->bytes, plain->bytes);
  const auto cube = ParseNpy(Npy("|u1", "True", "(2, 2, 2)", std::string("\0\4\2\6\1\5\3\7", 8)));
  EXPECT_THAT(cube->as<uint8_t>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const auto big = ParseNpy(Npy(">f8", "False", "(1,)", Reversed(BytesOf<double>({0.1}))));
  EXPECT_THAT(big->as<double>(), ElementsAre(0.1));
  const auto half = ParseNpy(Npy("<f2", "False", "(1, 2)", BytesOf<uint16_t>({0x3C00, 0xC000})));
  EXPECT_THAT(AsDoubles(half->view()), ElementsAre(1, -2));
  const auto signed_numbers = ParseNpy(Npy("<i2", "False", "(2,)", BytesOf<int16_t>({-3, 7})));
  EXPECT_THAT(signed_numbers->as<int64_t>(), ElementsAre(-3, 7));
  const auto words = ParseNpy(Npy("<u4", "False", "(1,)", BytesOf<uint32_t>({4000000000U})));
  EXPECT_THAT(words->as<int64_t>(), ElementsAre(4000000000));
}

TEST(ParseNpy, RefusesWhatIsDamagedOrNotRead) {
  const std::string whole = Npy("<f4", "False", "(2, 1)", std::string(8, 'x'));
  for (const size_t size : {size_t{0}, size_t{7}, size_t{9}, size_t{30}, whole.size() - 1}) {
    EXPECT_EQ(ParseNpy(whole.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_FALSE(ParseNpy(whole + "x").ok());
  for (const char* shape :
       {"(-1, 2)", "(2", "2", "(9223372036854775807, 4)", "(x,)", "(1,1,1,1,1,1,1,1,1)"}) {
    EXPECT_FALSE(ParseNpy(Npy("<f4", "False", shape, std::string(8, 'x'))).ok()) << shape;
  }
  for (const char* type : {"<c8", "|O8", "|b1", "<U4", "<u8", "<f16", ""}) {
    EXPECT_THAT(Words(ParseNpy(Npy(type, "False", "(1,)", std::string(8, 'x'))).status()),
                HasSubstr("elements of type"))
        << type;
  }
}

TEST_F(RowsTest, TheContentSaysWhatAFileIs) {
  const HostTensor numbers = Numbers(2, 2);
  EXPECT_THAT(Read("a", SerializeSafetensors({{"y", numbers.view()}})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Read("b", Npy("<f8", "False", "(2, 2)", BytesOf<double>({0, 1, 2, 3}))),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Read("c", std::string("\0\0\x08\x02\0\0\0\x02\0\0\0\x01\x05\x06", 14)),
              ElementsAre(5, 6));
  std::string floats("\0\0\x0d\x02\0\0\0\x01\0\0\0\x02", 12);
  floats += Reversed(BytesOf<float>({-2, 0.5}));
  EXPECT_THAT(Read("d.idx", floats), ElementsAre(0.5, -2));
  std::string doubles("\0\0\x0e\x01\0\0\0\x01", 8);
  doubles += Reversed(BytesOf<double>({0.1}));
  EXPECT_THAT(Read("e.idx", doubles), ElementsAre(0.1));
  EXPECT_THAT(Read("f.txt", "1 2\n3 4\n"), ElementsAre(1, 2, 3, 4));
}

TEST_F(RowsTest, SamplesCanBeFedBack) {
  const auto file = ReadRows(Write("samples.csv", "x0,x1,log_density\n1,2,-3.5\n4,5,-6.5\n"), "");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->rows.shape, Shape({2, 2}));
  EXPECT_THAT(file->rows.as<double>(), ElementsAre(1, 2, 4, 5));
  const HostTensor x = Numbers(2, 2), density = Numbers(2, 1);
  EXPECT_THAT(
      Read("samples", SerializeSafetensors({{"x", x.view()}, {"log_density", density.view()}})),
      ElementsAre(0, 1, 2, 3));
}

TEST_F(RowsTest, NamesTheFileOnceAndWhatItIs) {
  const HostTensor tensor = Numbers(2, 1);
  const std::pair<std::string, std::string> cases[] = {
      {Write("ragged.csv", "1,2\n3\n"), "line 2 has 1 number"},
      {Write("header.csv", "a,b\n"), "holds no rows"},
      {Write("text.safetensors", "text"), "not a safetensors file"},
      {Write("y.safetensors", SerializeSafetensors({{"y", tensor.view()}})),
       "--tensor=z: no tensor 'z'; there are y"},
      {Write("zip.npz", "PK\x03\x04 and more"), "this is a zip"},
      {Write("pointer.npy", "version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
      {Write("pickle.pt", "\x80\x04 and more"), "a pickle, which is never read"},
      {Write("noise.bin", std::string("ab\0cd", 5)), "neither NPY, safetensors or IDX"},
      {Write("short.idx", std::string("\0\0\x08\x01\0\0\0\x02\x07", 9)), "does not fit"},
      {Write("cut.npy", std::string(kNpyMagic)), "damaged or cut short"},
      {testing::TempDir() + "rows_missing", "cannot open"}};
  for (const auto& [path, what] : cases) {
    const std::string words = Words(ReadRows(path, "z").status());
    EXPECT_THAT(words, HasSubstr(what));
    EXPECT_EQ(words.find(path), 0U) << words;
    EXPECT_EQ(words.find(path, 1), words.npos) << words;
  }
}

TEST(FitRows, ShapesCutsAndRefuses) {
  const auto rows = FitRows({.name = "z.csv", .rows = Numbers(3, 4), .flat = true}, {1, 2, 2}, 2);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->shape, Shape({2, 1, 2, 2}));
  EXPECT_EQ(rows->elements(), 8);
  const auto wrong = FitRows({.name = "z.csv", .rows = Numbers(3, 4), .flat = true}, {5}, 0);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Words(wrong.status()), HasSubstr("z.csv: a row has shape [4], the model takes [5]"));
}

TEST(FitRows, NothingIsRelabelled) {
  const auto fit = [](const Shape& row, const Shape& wanted) {
    Shape shape = row;
    shape.insert(shape.begin(), 2);
    return FitRows({.name = "images", .rows = HostTensor::Zeros(Dtype::kU8, shape)}, wanted, 0);
  };
  EXPECT_EQ(fit({28, 28}, {1, 28, 28})->shape, Shape({2, 1, 28, 28}));
  EXPECT_EQ(fit({1, 28, 28}, {28, 28})->shape, Shape({2, 28, 28}));
  const auto last = fit({4, 4, 3}, {3, 4, 4});
  EXPECT_THAT(Words(last.status()), HasSubstr("channels last (NHWC)"));
  for (const Shape& row : {Shape{48}, Shape{4, 3, 4}, Shape{16, 3}}) {
    const auto other = fit(row, {3, 4, 4});
    EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Words(other.status()), Not(HasSubstr("NHWC")));
  }
}

}  // namespace
}  // namespace hyperserve
