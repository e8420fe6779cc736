#include "tests/testing/idx_fixture.h"

#include <fstream>

namespace hyperserve::fixture {
namespace {

constexpr char kBright = static_cast<char>(200);

void AppendNumber(std::string& bytes, int value) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift));
}

void WritePart(const std::string& prefix, int first, int rows, int side) {
  std::string images, labels;
  AppendNumber(images, 0x00000803);
  for (const int size : {rows, side, side}) AppendNumber(images, size);
  AppendNumber(labels, 0x00000801);
  AppendNumber(labels, rows);
  for (int i = first; i < first + rows; ++i) {
    const int label = i % 10;
    const auto row = static_cast<size_t>(side);
    std::string image(row * row, '\0');
    if (label < side) image.replace(row * label, row, std::string(row, kBright));
    image[0] = static_cast<char>(i % 256);
    images += image;
    labels.push_back(static_cast<char>(label));
  }
  std::ofstream(prefix + "-images-idx3-ubyte", std::ios::binary) << images;
  std::ofstream(prefix + "-labels-idx1-ubyte", std::ios::binary) << labels;
}

}  // namespace

void WriteIdxData(const std::string& folder, const IdxDataOptions& options) {
  WritePart(folder + "/train", 0, options.training_rows, options.side);
  WritePart(folder + "/t10k", options.training_rows, options.test_rows, options.side);
}

}  // namespace hyperserve::fixture
