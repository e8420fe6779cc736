#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/engine/device.h"
#include "core/engine/readable/row_numbers.h"
#include "core/io/philox.h"
#include "core/ode/space.h"

namespace hyperserve {
namespace {

class KernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaDevices().empty()) GTEST_SKIP() << "no CUDA device";
  }
};

std::vector<double> HostNormals(uint64_t seed, uint64_t first_row, int64_t rows,
                                int64_t dimensions) {
  std::vector<double> normals(static_cast<size_t>(rows * dimensions));
  PhiloxNormals(seed, first_row, rows, dimensions, normals);
  return normals;
}

// The promise of the wire is 1e-6 between devices; both twins compute in double, so that only the
// rounding to the result's type may differ.
TEST_F(KernelsTest, NormalsAreThoseOfTheHost) {
  for (const int64_t dimensions : {1, 2, 3, 4, 7, 784}) {
    const uint64_t seed = 0x123456789abcdef0, first_row = (uint64_t{1} << 32) - 3;
    const std::vector<double> expected = HostNormals(seed, first_row, 17, dimensions);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      at::Tensor rows = at::empty({17, dimensions}, at::TensorOptions(at::kCUDA).dtype(dtype));
      CudaNormals(seed, first_row, rows);
      const PerRow found = RowValues(rows.flatten());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], dtype == at::kFloat ? 5e-7 : 1e-14);
      }
    }
  }
}

TEST_F(KernelsTest, ErrorSquaresAreThoseOfTheHost) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t elements : {1, 2, 255, 256, 257, 25088}) {
      at::Tensor z0 = at::randn({5, elements}, dtype), z1 = at::randn({5, elements}, dtype);
      at::Tensor error = at::randn({5, elements}, dtype) * 1e-4;
      z1[3][elements - 1] = std::numeric_limits<double>::infinity();
      error[4][0] = std::numeric_limits<double>::infinity();
      const PerRow rtol = {1e-5, 1e-3, 1e-7, 1e-5, 1e-5}, atol = {1e-6, 1e-5, 1e-9, 1e-6, 1e-6};
      const PerRow host = RowErrorSquares(error, z0, z1, rtol, atol);
      const PerRow device =
          RowErrorSquares(error.to(at::kCUDA), z0.to(at::kCUDA), z1.to(at::kCUDA), rtol, atol);
      for (size_t row = 0; row < host.size(); ++row) {
        if (row >= 3) {
          EXPECT_TRUE(std::isnan(host[row]) && std::isnan(device[row])) << host[row] << device[row];
        } else {
          // Sums of up to 25088 positive numbers in another order.
          EXPECT_NEAR(device[row] / host[row], 1.0, 1e-12);
        }
      }
    }
  }
}

TEST_F(KernelsTest, RowsErrorDoesNotDependOnTheBatch) {
  const at::Tensor z = at::randn({64, 1000}, at::TensorOptions(at::kCUDA)), error = z * 1e-3;
  const PerRow all = RowErrorSquares(error, z, z, PerRow(64, 1e-5), PerRow(64, 1e-5));
  for (const int64_t row : {0, 13, 63}) {
    const at::Tensor e = error.narrow(0, row, 1), one = z.narrow(0, row, 1);
    EXPECT_EQ(RowErrorSquares(e, one, one, {1e-5}, {1e-5})[0], all[static_cast<size_t>(row)]);
  }
}

}  // namespace
}  // namespace hyperserve
