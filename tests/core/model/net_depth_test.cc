// Layers that vary with the depth, attention and transposed convolutions against their formulas,
// written out in other words.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/depth.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/norms.h"
#include "core/model/net/net.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

using fixture::Apply, fixture::MaxDifference, fixture::Random, fixture::RandomTensors;

constexpr double kRounding = 1e-13;

at::Tensor Depth() { return at::tensor({0.25, 0.75}, at::kDouble); }

TEST(DepthTest, FilmIsFfjordsConcatSquash) {
  const LayerList layers = {
      {LinearLayer{.in = 3, .out = 2}},
      {FilmLayer{.gate = FilmGate::kSigmoid, .layers = {{LinearLayer{.in = 1, .out = 4}}}}}};
  TensorMap tensors = RandomTensors(layers);
  const at::Tensor x = Random({2, 3}), s = Depth(), y = Apply(layers, tensors, x, s);
  const at::Tensor &w = tensors["net.1.layers.0.weight"], &b = tensors["net.1.layers.0.bias"];
  const at::Tensor linear = at::linear(x, tensors["net.0.weight"], tensors["net.0.bias"]);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t c = 0; c < 2; ++c) {
      const at::Tensor gate = at::sigmoid(w[c][0] * s[row] + b[c]);
      const at::Tensor shift = w[c + 2][0] * s[row] + b[c + 2];
      EXPECT_NEAR(y[row][c].item<double>(), (linear[row][c] * gate + shift).item<double>(),
                  kRounding);
    }
  }
}

TEST(DepthTest, FilmScalesTheChannelsOfImages) {
  const LayerList layers = {{FilmLayer{.layers = {{LinearLayer{.in = 1, .out = 6}}}}}};
  TensorMap tensors = RandomTensors(layers);
  const at::Tensor x = Random({2, 3, 2, 4}), y = Apply(layers, tensors, x, Depth());
  const at::Tensor film = at::linear(Depth().unsqueeze(-1), tensors["net.0.layers.0.weight"],
                                     tensors["net.0.layers.0.bias"]);
  EXPECT_LT(MaxDifference(y[1][2], x[1][2] * (1 + film[1][2]) + film[1][5]), kRounding);
}

TEST(DepthTest, TheConditionStandsBesideTheChannelsOrScalesThem) {
  const at::Tensor c = Random({2, 3}), x = Random({2, 4}), image = Random({2, 4, 2, 5});
  EXPECT_EQ(
      MaxDifference(Apply({{ConditionCatLayer{.features = 3}}}, {}, x, {}, c), at::cat({x, c}, 1)),
      0.0);
  const at::Tensor first =
      Apply({{ConditionCatLayer{.features = 3, .first = true}}}, {}, image, {}, c);
  EXPECT_EQ(MaxDifference(first.narrow(1, 3, 4), image), 0.0);
  EXPECT_EQ(MaxDifference(first[1][2], at::full({2, 5}, c[1][2].item<double>(), at::kDouble)), 0.0);
  const LayerList film = {
      {ConditionFilmLayer{.features = 3, .layers = {{LinearLayer{.in = 3, .out = 8}}}}}};
  TensorMap tensors = RandomTensors(film);
  const at::Tensor y = Apply(film, tensors, image, {}, c);
  const at::Tensor scales =
      at::linear(c, tensors["net.0.layers.0.weight"], tensors["net.0.layers.0.bias"]);
  EXPECT_LT(MaxDifference(y[1][2], image[1][2] * (1 + scales[1][2]) + scales[1][6]), kRounding);
}

TEST(DepthTest, EmbeddingsAreCosinesThenSines) {
  const at::Tensor t = at::tensor({0.5, 2.0}, at::kDouble).unsqueeze(-1);
  const at::Tensor y =
      Apply({{SinusoidalLayer{.features = 6, .max_period = 1000, .scale = 2}}}, {}, t);
  for (int64_t k = 0; k < 3; ++k) {
    const double angle = 2.0 * 2 * std::pow(1000.0, -static_cast<double>(k) / 3);
    EXPECT_NEAR(y[1][k].item<double>(), std::cos(angle), kRounding);
    EXPECT_NEAR(y[1][k + 3].item<double>(), std::sin(angle), kRounding);
  }
  const at::Tensor weight = at::tensor({0.5, -1.25}, at::kDouble);
  const at::Tensor fourier =
      Apply({{FourierFeaturesLayer{.features = 4}}}, {{"net.0.weight", weight}}, t);
  EXPECT_NEAR(fourier[1][1].item<double>(), std::cos(2 * M_PI * -1.25 * 2), kRounding);
  EXPECT_NEAR(fourier[0][3].item<double>(), std::sin(2 * M_PI * -1.25 * 0.5), kRounding);
}

TEST(DepthTest, GalerkinSumsItsBasis) {
  const double s = 0.75;
  const auto expect = [&](GalerkinBasis basis, const std::vector<double>& phi) {
    const LayerList layers = {
        {GalerkinLinearLayer{.in = 3, .out = 2, .terms = 5, .basis = basis, .period = 2}}};
    TensorMap tensors = RandomTensors(layers);
    const at::Tensor x = Random({2, 3});
    at::Tensor wanted = at::zeros({2}, at::kDouble);
    for (int64_t k = 0; k < 5; ++k) {
      wanted += phi[static_cast<size_t>(k)] *
                at::linear(x[1], tensors["net.0.weight"][k], tensors["net.0.bias"][k]);
    }
    EXPECT_LT(MaxDifference(Apply(layers, tensors, x, Depth())[1], wanted), kRounding);
  };
  const double angle = std::acos(s);
  expect(GalerkinBasis::kPolynomial, {1, s, s * s, s * s * s, s * s * s * s});
  expect(GalerkinBasis::kChebyshev,
         {1, s, std::cos(2 * angle), std::cos(3 * angle), std::cos(4 * angle)});
  expect(GalerkinBasis::kFourier, {1, std::sin(M_PI * s), std::cos(M_PI * s),
                                   std::sin(2 * M_PI * s), std::cos(2 * M_PI * s)});
}

TEST(DenseTest, TransposedConvolutionAddsItsKernelForEachPixel) {
  const ConvTranspose2dLayer conv{
      .in = 2, .out = 3, .kernel = 3, .padding = 1, .stride = 2, .output_padding = 1};
  TensorMap tensors = RandomTensors({{conv}});
  const at::Tensor x = Random({1, 2, 3, 2}), y = Apply({{conv}}, tensors, x);
  at::Tensor whole = at::zeros({3, 2 * 2 + 3 + 1, 1 * 2 + 3 + 1}, at::kDouble);
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        whole.narrow(1, 2 * i, 3).narrow(2, 2 * j, 3) += x[0][c][i][j] * tensors["net.0.weight"][c];
      }
    }
  }
  const at::Tensor wanted =
      whole.slice(1, 1, 7).slice(2, 1, 5) + tensors["net.0.bias"].view({3, 1, 1});
  EXPECT_LT(MaxDifference(y[0], wanted), kRounding);
}

TEST(DenseTest, AttentionIsAWeightedMeanOfValues) {
  const LayerList layers = {{AttentionLayer{.channels = 4, .heads = 2}}};
  TensorMap tensors = RandomTensors(layers);
  const at::Tensor x = Random({1, 4, 2, 3}), y = Apply(layers, tensors, x);
  const at::Tensor all = at::linear(x[0].flatten(1).t(), tensors["net.0.in_proj_weight"],
                                    tensors["net.0.in_proj_bias"]);  // [6, 12]
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < 2; ++head) {
    const auto part = [&](int64_t which) { return all.narrow(1, 4 * which + 2 * head, 2); };
    at::Tensor share = at::exp(at::matmul(part(0), part(1).t()) / std::sqrt(2.0));
    share = share / share.sum(1, true);
    heads.push_back(at::matmul(share, part(2)));
  }
  const at::Tensor wanted = at::linear(at::cat(heads, 1), tensors["net.0.out_proj.weight"],
                                       tensors["net.0.out_proj.bias"]);
  EXPECT_LT(MaxDifference(y[0].flatten(1).t(), wanted), kRounding);
}

TEST(JoinsTest, SmallKindsDoWhatTheirNamesSay) {
  const at::Tensor x = Random({2, 3, 2, 2});
  const LayerList skip = {{SkipLayer{.layers = {{Conv2dLayer{.in = 3, .out = 1}}}}}};
  const at::Tensor y = Apply(skip, RandomTensors(skip), x);
  EXPECT_TRUE(at::equal(y.narrow(1, 0, 3), x));
  EXPECT_EQ(y.size(1), 4);
  EXPECT_TRUE(at::equal(Apply({{ClampLayer{.low = -0.5, .high = 0.25}}}, {}, x),
                        at::minimum(at::maximum(x, at::full({}, -0.5, at::kDouble)),
                                    at::full({}, 0.25, at::kDouble))));
  const at::Tensor up = Apply({{UpsampleLayer{.scale_factor = 3}}}, {}, x);
  EXPECT_EQ(up.sizes(), (std::vector<int64_t>{2, 3, 6, 6}));
  EXPECT_TRUE(at::equal(up[1][2].slice(0, 3, 6).slice(1, 0, 3), x[1][2][1][0].expand({3, 3})));
  const LayerList affine = {{AffineLayer{.channels = 3}}};
  TensorMap tensors = RandomTensors(affine);
  EXPECT_LT(MaxDifference(Apply(affine, tensors, x)[1][2],
                          x[1][2] * tensors["net.0.weight"][2] + tensors["net.0.bias"][2]),
            kRounding);
}

}  // namespace
}  // namespace hyperserve
