// Activations against the functions of the C library, and their slopes where they are hard.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/model/layers/activations.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

using fixture::Apply, fixture::Random, fixture::RandomTensors;

constexpr double kRounding = 1e-13;

double Elu(double a, double alpha) { return a > 0 ? a : alpha * std::expm1(a); }

TEST(ActivationsTest, AreTheirFormulas) {
  const std::pair<Layer, double (*)(double)> cases[] = {
      {{TanhLayer{}}, [](double a) { return std::tanh(a); }},
      {{SigmoidLayer{}}, [](double a) { return 1 / (1 + std::exp(-a)); }},
      {{SinLayer{}}, [](double a) { return std::sin(a); }},
      {{ReluLayer{}}, [](double a) { return std::max(a, 0.0); }},
      {{SiluLayer{}}, [](double a) { return a / (1 + std::exp(-a)); }},
      {{SeluLayer{}},
       [](double a) { return 1.0507009873554804934 * Elu(a, 1.6732632423543772848); }},
      {{SoftplusLayer{}}, [](double a) { return std::log(1 + std::exp(a)); }},
      {{SoftplusLayer{.beta = 2.5}},
       [](double a) { return std::log(1 + std::exp(2.5 * a)) / 2.5; }},
      {{EluLayer{}}, [](double a) { return Elu(a, 1); }},
      {{EluLayer{.alpha = 0.75}}, [](double a) { return Elu(a, 0.75); }},
      {{LeakyReluLayer{}}, [](double a) { return a > 0 ? a : 0.01 * a; }},
      {{LeakyReluLayer{.negative_slope = -0.5}}, [](double a) { return a > 0 ? a : -0.5 * a; }},
      {{GeluLayer{}}, [](double a) { return a * std::erfc(-a / std::sqrt(2.0)) / 2; }},
      {{GeluLayer{.approximate = GeluForm::kTanh}},
       [](double a) {
         return a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * std::pow(a, 3))));
       }},
  };
  const at::Tensor x = at::linspace(-30, 30, 601, at::kDouble).view({601, 1});
  for (const auto& [layer, formula] : cases) {
    const at::Tensor y = Apply({layer}, {}, x);
    for (int64_t i = 0; i < x.size(0); ++i) {
      const double a = x[i][0].item<double>();
      EXPECT_NEAR(y[i][0].item<double>(), formula(a), kRounding) << LayerName(layer) << " " << a;
    }
  }
}

// Far from zero neither the value nor the slope, by tangents or by autograd, overflows to NaN.
TEST(ActivationsTest, SlopesHoldFarFromZero) {
  struct Case {
    Layer layer;
    double left, right;  // slopes at -800 and 800
  };
  const Case cases[] = {
      {{SeluLayer{}}, 0, 1.0507009873554804934},           {{EluLayer{.alpha = 2}}, 0, 1},
      {{LeakyReluLayer{.negative_slope = 0.2}}, 0.2, 1},   {{SoftplusLayer{.beta = 3}}, 0, 1},
      {{GeluLayer{.approximate = GeluForm::kTanh}}, 0, 1},
  };
  for (const Case& wanted : cases) {
    SCOPED_TRACE(LayerName(wanted.layer));
    const at::Tensor x = at::tensor({-800.0, 800.0}, at::kDouble).view({2, 1}).requires_grad_();
    const at::Tensor one = at::ones({1, 2, 1}, at::kDouble);
    const Dual y = Net::Make({wanted.layer}, "net", {}).value().Apply(Dual{x, one}, {});
    y.value.sum().backward();
    for (const at::Tensor& slopes : {y.tangents.flatten(), x.grad().flatten()}) {
      EXPECT_DOUBLE_EQ(slopes[0].item<double>(), wanted.left);
      EXPECT_DOUBLE_EQ(slopes[1].item<double>(), wanted.right);
    }
  }
}

TEST(ActivationsTest, SoftplusHoldsAtTheEndsAndHasItsSlopeAtZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double beta : {1.0, 0.25}) {
    const Layer softplus = {SoftplusLayer{.beta = beta}};
    const at::Tensor x = at::tensor({0.0, 8000.0, -8000.0, infinity}, at::kDouble).view({4, 1});
    const at::Tensor y = Apply({softplus}, {}, x);
    EXPECT_EQ(y[0][0].item<double>(), std::log(2.0) / beta);
    EXPECT_EQ(y[1][0].item<double>(), 8000.0);
    EXPECT_EQ(y[2][0].item<double>(), 0.0);
    EXPECT_EQ(y[3][0].item<double>(), infinity);
    at::Tensor zero = at::zeros({1, 1}, at::kDouble).requires_grad_();
    Apply({softplus}, {}, zero).sum().backward();
    EXPECT_EQ(zero.grad().item<double>(), 0.5);
  }
}

// Where exp(a) - 1 would have lost half its digits.
TEST(ActivationsTest, ExponentialsAreExactNearZero) {
  const at::Tensor x = at::full({1, 1}, -1e-9, at::kDouble);
  EXPECT_DOUBLE_EQ(Apply({{EluLayer{}}}, {}, x).item<double>(), std::expm1(-1e-9));
}

TEST(ActivationsTest, PreluHasOneSlopeOrOneAChannel) {
  const at::Tensor x = Random({2, 3, 2, 2});
  for (const int64_t slopes : {1, 3}) {
    const LayerList layers = {{PreluLayer{.slopes = slopes}}};
    TensorMap t = RandomTensors(layers);
    const at::Tensor y = Apply(layers, t, x);
    for (int64_t c = 0; c < 3; ++c) {
      const double slope = t["net.0.weight"][slopes == 1 ? 0 : c].item<double>();
      const at::Tensor v = x.select(1, c);
      EXPECT_TRUE(at::equal(y.select(1, c), at::where(v > 0, v, v * slope)));
    }
  }
}

}  // namespace
}  // namespace hyperserve
