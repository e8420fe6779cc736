// Layers that mix the numbers of a row, and norms, against sums written out as loops.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/norms.h"
#include "core/model/net/net.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

using fixture::Apply, fixture::MaxDifference, fixture::Random, fixture::RandomTensors;

constexpr double kRounding = 1e-13;

// Cross-correlation with zero padding, as the format's page says.
at::Tensor NaiveConv(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                     const Conv2dLayer& conv) {
  const auto [h, v] = std::pair{conv.kernel.width, conv.kernel.height};
  const int64_t height = (x.size(2) + 2 * conv.padding.height - v) / conv.stride + 1,
                width = (x.size(3) + 2 * conv.padding.width - h) / conv.stride + 1;
  const int64_t channels = conv.in / conv.groups;  // that one output reads
  at::Tensor y = at::zeros({x.size(0), conv.out, height, width}, at::kDouble);
  auto in = x.accessor<double, 4>(), weight = w.accessor<double, 4>(),
       out = y.accessor<double, 4>();
  for (int64_t n = 0; n < x.size(0); ++n) {
    for (int64_t o = 0; o < conv.out; ++o) {
      const int64_t first = o / (conv.out / conv.groups) * channels;
      for (int64_t i = 0; i < height * width; ++i) {
        double sum = b[o].item<double>();
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t j = 0; j < v * h; ++j) {
            const int64_t row = i / width * conv.stride + j / h - conv.padding.height;
            const int64_t column = i % width * conv.stride + j % h - conv.padding.width;
            if (row < 0 || column < 0 || row >= x.size(2) || column >= x.size(3)) continue;
            sum += weight[o][c][j / h][j % h] * in[n][first + c][row][column];
          }
        }
        out[n][o][i / width][i % width] = sum;
      }
    }
  }
  return y;
}

TEST(DenseTest, ConvolutionIsTheWrittenOutSum) {
  for (const Conv2dLayer& conv :
       {Conv2dLayer{.in = 4, .out = 6, .kernel = 3, .padding = 1},
        Conv2dLayer{.in = 4, .out = 6, .kernel = 3, .stride = 2},
        Conv2dLayer{.in = 4, .out = 6, .kernel = 1},
        Conv2dLayer{.in = 4, .out = 6, .kernel = 2, .padding = 1},
        Conv2dLayer{.in = 4, .out = 6, .kernel = {3, 1}, .padding = {1, 0}},
        Conv2dLayer{.in = 4, .out = 6, .kernel = {2, 5}, .padding = {0, 2}, .stride = 2},
        Conv2dLayer{.in = 4, .out = 6, .kernel = 3, .padding = 1, .groups = 2},
        Conv2dLayer{.in = 4, .out = 8, .kernel = {1, 3}, .padding = {0, 1}, .groups = 4}}) {
    TensorMap tensors = RandomTensors({{conv}});
    const at::Tensor x = Random({2, 4, 6, 5});
    const at::Tensor expected = NaiveConv(x, tensors["net.0.weight"], tensors["net.0.bias"], conv);
    EXPECT_LT(MaxDifference(Apply({{conv}}, tensors, x), expected), kRounding);
    // In float32 the CPU takes another library.
    TensorMap single = {{"net.0.weight", tensors["net.0.weight"].to(at::kFloat)},
                        {"net.0.bias", tensors["net.0.bias"].to(at::kFloat)}};
    EXPECT_LT(MaxDifference(Apply({{conv}}, single, x.to(at::kFloat)).to(at::kDouble), expected),
              1e-4);
  }
}

TEST(DenseTest, LinearIsRowsTimesColumns) {
  const LayerList layers = {{LinearLayer{.in = 3, .out = 2}}};
  TensorMap tensors = RandomTensors(layers);
  const at::Tensor x = Random({4, 3}), y = Apply(layers, tensors, x);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t o = 0; o < 2; ++o) {
      double sum = tensors["net.0.bias"][o].item<double>();
      for (int64_t i = 0; i < 3; ++i) {
        sum += tensors["net.0.weight"][o][i].item<double>() * x[row][i].item<double>();
      }
      EXPECT_NEAR(y[row][o].item<double>(), sum, kRounding);
    }
  }
}

TEST(NormsTest, BatchNormTakesTheStatisticsOfItsTensors) {
  const LayerList layers = {{BatchNormLayer{.channels = 4, .eps = 1e-3}}};
  TensorMap t = RandomTensors(layers);
  const at::Tensor x = Random({2, 4, 4, 6}), y = Apply(layers, t, x);
  for (int64_t c = 0; c < 4; ++c) {
    const auto of = [&](const char* name) {
      return t[std::string("net.0.") + name][c].item<double>();
    };
    const at::Tensor expected =
        (x.select(1, c) - of("running_mean")) / std::sqrt(of("running_var") + 1e-3) * of("weight") +
        of("bias");
    EXPECT_LT(MaxDifference(y.select(1, c), expected), 1e-12);
  }
}

// (v - mean) / sqrt(variance + 1e-3), of all numbers of v.
at::Tensor Standardised(const at::Tensor& v) {
  const double mean = v.mean().item<double>(), square = (v * v).mean().item<double>();
  return (v - mean) / std::sqrt(square - mean * mean + 1e-3);
}

TEST(NormsTest, GroupNormTakesThoseOfEachGroup) {
  const LayerList layers = {{GroupNormLayer{.groups = 2, .channels = 4, .eps = 1e-3}}};
  TensorMap t = RandomTensors(layers);
  const at::Tensor x = Random({2, 4, 4, 6}), y = Apply(layers, t, x);
  for (int64_t c = 0; c < 4; ++c) {
    const at::Tensor expected =
        Standardised(x[1].narrow(0, c / 2 * 2, 2))[c % 2] * t["net.0.weight"][c].item<double>() +
        t["net.0.bias"][c].item<double>();
    EXPECT_LT(MaxDifference(y[1][c], expected), 1e-12);
  }
}

TEST(NormsTest, LayerNormTakesThoseOfTheLastDimensions) {
  const at::Tensor x = Random({2, 3, 4, 6});
  for (const Shape& shape : {Shape{6}, Shape{4, 6}, Shape{3, 4, 6}}) {
    const LayerList layers = {{LayerNormLayer{.normalized_shape = shape, .eps = 1e-3}}};
    TensorMap t = RandomTensors(layers);
    const at::Tensor y = Apply(layers, t, x);
    const at::Tensor runs = x.flatten(0, 3 - std::ssize(shape)), found = y.view(runs.sizes());
    for (int64_t run = 0; run < runs.size(0); ++run) {
      const at::Tensor expected = Standardised(runs[run]) * t["net.0.weight"] + t["net.0.bias"];
      EXPECT_LT(MaxDifference(found[run], expected), 1e-12) << ShapeText(shape);
    }
  }
}

}  // namespace
}  // namespace hyperserve
