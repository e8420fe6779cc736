// The fused convolution kernels' tests: models packed on the device, solves of them, their errors
// against the twin.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/kernels/conv/conv.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/device_array.h"

namespace hyperserve::kernels::images {

using testing::DeviceArray;

inline constexpr float kUntouched = 12345.0f;

inline size_t ElementsOf(const ConvModel& model) {
  return static_cast<size_t>(model.channels * model.height * model.width);
}

inline std::vector<float> Normals(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Solved {
  std::vector<float> z;
  std::vector<uint8_t> unfit;
  std::vector<int32_t> evaluations;  // of adaptive solves
};

// A model packed on the current device.
class Packed {
 public:
  // Not more than `images_max` are solved at once; those beyond them follow in the same blocks.
  explicit Packed(const ConvModel& model, int images_max = std::numeric_limits<int>::max())
      : elements_(ElementsOf(model)), image_(PackConv(model)), bytes_(image_.bytes) {
    EXPECT_EQ(ConvMisfit(model), "");
    EXPECT_EQ(PrepareConv(image_.layout, bytes_.data(), &program_), cudaSuccess);
    EXPECT_TRUE(ConvFits(program_));
    for (int& images : program_.images_at_once) images = std::min(images, images_max);
  }

  const ConvProgram& program() const { return program_; }
  // The numbers of blocks to an image that this device takes.
  std::vector<int> blocks() const {
    std::vector<int> taken;
    for (size_t i = 0; i < kConvBlocks.size(); ++i) {
      if (program_.images_at_once[i] > 0) taken.push_back(kConvBlocks[i]);
    }
    return taken;
  }

  // Nothing beyond the last row is written.
  Solved Solve(const ConvTask& task, const std::vector<float>& z0, int blocks = 0) const {
    const size_t count = z0.size() / elements_;
    const DeviceArray<float> from(z0), to(std::vector<float>(z0.size() + 64, kUntouched));
    const DeviceArray<uint8_t> unfit(std::vector<uint8_t>(count + 64, 77));
    const DeviceArray<int32_t> evaluations{std::vector<int32_t>(count)};
    const DeviceArray<std::byte> scratch(std::vector<std::byte>(ConvScratchBytes(program_, task)));
    const ConvRows rows{.count = static_cast<int64_t>(count),
                        .z0 = from.data(),
                        .z1 = to.data(),
                        .unfit = unfit.data(),
                        .evaluations = evaluations.data(),
                        .scratch = scratch.data()};
    EXPECT_EQ(SolveConv(program_, task, rows, nullptr, blocks), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    Solved solved{.z = to.Values(), .unfit = unfit.Values(), .evaluations = evaluations.Values()};
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(solved.z[z0.size() + i], kUntouched);
      EXPECT_EQ(solved.unfit[count + i], 77);
    }
    solved.z.resize(z0.size());
    solved.unfit.resize(count);
    return solved;
  }

 private:
  const size_t elements_;
  const ConvImage image_;
  const DeviceArray<std::byte> bytes_;
  ConvProgram program_;
};

// z1 of the twin.
inline std::vector<double> TwinEnds(const ConvModel& model, const ConvPlan& plan,
                                    const std::vector<float>& z0) {
  std::vector<double> ends;
  for (size_t begin = 0; begin < z0.size(); begin += ElementsOf(model)) {
    const std::vector<double> from(z0.begin() + begin, z0.begin() + begin + ElementsOf(model));
    const std::vector<double> to = TwinConvSolve(model, plan, from);
    ends.insert(ends.end(), to.begin(), to.end());
  }
  return ends;
}

// The norm of the error over that of z1 - offset z0; `ends`: z1 of the twin.
inline double Error(const std::vector<double>& ends, double offset, const std::vector<float>& z0,
                    const std::vector<float>& z1) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < ends.size(); ++i) {
    error += std::pow(z1[i] - ends[i], 2.0);
    norm += std::pow(ends[i] - offset * z0[i], 2.0);
  }
  return std::sqrt(error / norm);
}

inline double Error(const ConvModel& model, const ConvPlan& plan, double offset,
                    const std::vector<float>& z0, const std::vector<float>& z1) {
  return Error(TwinEnds(model, plan, z0), offset, z0, z1);
}

inline ConvPlan HyperHeun(int steps) {
  return {.tableau = TableauFor({.method = Method::kHeun}), .steps = steps, .hypersolved = true};
}

}  // namespace hyperserve::kernels::images
