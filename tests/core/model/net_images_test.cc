// Pools, rearrangements and joins against what each output pixel should be.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/net/net.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

using fixture::Apply, fixture::MaxDifference, fixture::Random, fixture::RandomTensors;

constexpr double kRounding = 1e-13;

TEST(JoinsTest, ParallelStandsTheAnswersOfItsBranchesSideBySide) {
  const LayerList first = {{LinearLayer{.in = 3, .out = 2}}, {TanhLayer{}}};
  const LayerList layers = {
      {ParallelLayer{.branches = {first, {{LinearLayer{.in = 3, .out = 4}}}, {}}}}};
  TensorMap tensors = RandomTensors(layers);
  const at::Tensor x = Random({2, 3}), y = Apply(layers, tensors, x);
  ASSERT_EQ(y.sizes(), (std::vector<int64_t>{2, 2 + 4 + 3}));
  const at::Tensor head = at::tanh(
      at::linear(x, tensors["net.0.branches.0.0.weight"], tensors["net.0.branches.0.0.bias"]));
  EXPECT_LT(MaxDifference(y.narrow(1, 0, 2), head), kRounding);
  EXPECT_LT(MaxDifference(y.narrow(1, 2, 4), at::linear(x, tensors["net.0.branches.1.0.weight"],
                                                        tensors["net.0.branches.1.0.bias"])),
            kRounding);
  EXPECT_TRUE(at::equal(y.narrow(1, 6, 3), x));
  const at::Tensor image = Random({2, 3, 4, 5});
  const LayerList pools = {{ParallelLayer{
      .branches = {{{MaxPoolLayer{.kernel = 3, .stride = 1, .padding = 1}}}, {{SinLayer{}}}}}}};
  EXPECT_EQ(MaxDifference(Apply(pools, {}, image).narrow(1, 3, 3), at::sin(image)), 0.0);
}

TEST(ImagesTest, AvgPoolCountsPadding) {
  const at::Tensor x = Random({2, 4, 4, 6});
  const at::Tensor y = Apply({{AvgPoolLayer{.kernel = 2, .stride = 2, .padding = 1}}}, {}, x);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 4, 3, 4}));
  EXPECT_NEAR(y[0][0][0][0].item<double>(), x[0][0][0][0].item<double>() / 4, kRounding);
  EXPECT_NEAR(y[1][2][1][1].item<double>(),
              x[1][2].narrow(0, 1, 2).narrow(1, 1, 2).sum().item<double>() / 4, kRounding);
}

TEST(ImagesTest, MaxPoolNeverTakesPadding) {
  const at::Tensor x = Random({2, 4, 4, 6}) - 10;  // below the zeros of a padding
  const at::Tensor y = Apply({{MaxPoolLayer{.kernel = 3, .stride = 2, .padding = 1}}}, {}, x);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 4, 2, 3}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t top = std::max<int64_t>(2 * i - 1, 0), left = std::max<int64_t>(2 * j - 1, 0);
      const at::Tensor window =
          x[1][3].narrow(0, top, 2 * i + 2 - top).narrow(1, left, 2 * j + 2 - left);
      EXPECT_EQ(y[1][3][i][j].item<double>(), window.max().item<double>()) << i << " " << j;
    }
  }
}

TEST(ImagesTest, MeanPoolAndFlatten) {
  const at::Tensor x = Random({2, 4, 4, 6});
  EXPECT_NEAR(Apply({{MeanPoolLayer{}}}, {}, x)[1][3].item<double>(),
              x[1][3].sum().item<double>() / 24, kRounding);
  EXPECT_TRUE(at::equal(Apply({{FlattenLayer{}}}, {}, x), x.view({2, 96})));
}

TEST(ImagesTest, PixelsAreShuffledAndBack) {
  const at::Tensor x = Random({2, 18, 2, 5});
  const at::Tensor y = Apply({{PixelShuffleLayer{.upscale_factor = 3}}}, {}, x);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 2, 6, 15}));
  for (int64_t c = 0; c < 18; ++c) {
    const at::Tensor pixels =
        y[1][c / 9].slice(0, c % 9 / 3, std::nullopt, 3).slice(1, c % 3, std::nullopt, 3);
    EXPECT_TRUE(at::equal(pixels, x[1][c])) << c;
  }
  EXPECT_TRUE(at::equal(Apply({{PixelUnshuffleLayer{.downscale_factor = 3}}}, {}, y), x));
}

TEST(JoinsTest, DepthIsTheLastChannelOrTheFirst) {
  const at::Tensor x = Random({2, 3, 2, 2}), depth = at::tensor({0.25, 0.75}, at::kDouble);
  const at::Tensor channel = depth.view({2, 1, 1, 1}).expand({2, 1, 2, 2});
  EXPECT_TRUE(at::equal(Apply({{DepthCatLayer{}}}, {}, x, depth), at::cat({x, channel}, 1)));
  EXPECT_TRUE(
      at::equal(Apply({{DepthCatLayer{.first = true}}}, {}, x, depth), at::cat({channel, x}, 1)));
}

TEST(JoinsTest, AugmentStandsBeforeAndResidualIsAdded) {
  const at::Tensor x = Random({2, 3, 2, 2}), depth = at::tensor({0.25, 0.75}, at::kDouble);
  const LayerList inner = {{DepthCatLayer{}}, {TanhLayer{}}, {Conv2dLayer{.in = 4, .out = 3}}};
  const at::Tensor y = Apply(inner, RandomTensors(inner), x, depth);
  const LayerList augment = {{AugmentLayer{.layers = inner}}};
  const LayerList residual = {{ResidualLayer{.layers = inner}}};
  EXPECT_TRUE(at::equal(Apply(augment, RandomTensors(augment), x, depth), at::cat({y, x}, 1)));
  EXPECT_TRUE(at::equal(Apply(residual, RandomTensors(residual), x, depth), x + y));
  const LayerList nested = {{ResidualLayer{.layers = {{ResidualLayer{.layers = inner}}}}}};
  EXPECT_TRUE(at::equal(Apply(nested, RandomTensors(nested), x, depth), x + (x + y)));
}

}  // namespace
}  // namespace hyperserve
