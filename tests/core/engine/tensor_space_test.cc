#include "core/engine/readable/tensor_space.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/engine/readable/row_numbers.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"

namespace hyperserve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const LayerList kField = {
    {LinearLayer{.in = 2, .out = 6}}, {SoftplusLayer{}}, {LinearLayer{.in = 6, .out = 2}}};
const LayerList kNet = {{LinearLayer{.in = 5, .out = 2}}};

TensorMap Random(const LayerList& layers) {
  at::manual_seed(3);
  TensorMap tensors;
  for (const auto& [name, shape] : ExpectedTensors(layers, "net")) {
    tensors[name] = at::randn(shape, at::kDouble);
  }
  return tensors;
}

TensorSpace MakeSpace(const TensorMap& field, const TensorMap& net) {
  return TensorSpace({.field = Net::Make(kField, "net", field).value(),
                      .correction = Net::Make(kNet, "net", net).value(),
                      .correction_inputs = {CorrectionInput::kState, CorrectionInput::kSlope1,
                                            CorrectionInput::kStep}});
}

// The step that is served is the step that the trainer differentiates.
TEST(TensorSpaceTest, AHypersolvedStepHasTheGradientOfItsNumbers) {
  const TensorMap field = Random(kField);
  TensorMap net = Random(kNet);
  at::Tensor& weight = net["net.0.weight"];
  weight.requires_grad_();
  const at::Tensor z = at::randn({3, 2}, at::kDouble);
  const auto loss = [&] {
    const TensorSpace space = MakeSpace(field, net);
    const TensorSpace::State start = space.Start(z);
    const PerRow s(3, 0.0), eps = {0.5, 0.25, 1.0};
    return HypersolvedStep(space, kEulerTableau, s, eps, start, start).z_next.z.square().sum();
  };
  loss().backward();
  const double gradient = weight.grad()[1][3].item<double>();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  weight[1][3] += kStep;
  const double above = loss().item<double>();
  weight[1][3] -= 2 * kStep;
  EXPECT_NEAR(gradient, (above - loss().item<double>()) / (2 * kStep), 1e-7);
}

TEST(TensorSpaceTest, CombinesSelectsAndGathersRowByRow) {
  const TensorSpace space = MakeSpace(Random(kField), Random(kNet));
  const TensorSpace::State z = space.Start(at::randn({3, 2}, at::kFloat));
  const TensorSpace::State k = space.Start(at::randn({3, 2}, at::kFloat));
  for (const PerRow& weights : {PerRow{0.1, 0.2, 0.3}, PerRow{0.7, 0.7, 0.7}}) {
    const Term<TensorSpace::State> term{&weights, &k};
    const at::Tensor sum = space.Combine(z, std::span(&term, 1)).z;
    for (int64_t row = 0; row < 3; ++row) {
      const volatile float product =
          static_cast<float>(weights[static_cast<size_t>(row)]) * k.z[row][1].item<float>();
      EXPECT_EQ(sum[row][1].item<float>(), z.z[row][1].item<float>() + product);
    }
  }
  const at::Tensor chosen = space.Where({true, false, true}, z, k).z;
  EXPECT_TRUE(at::equal(chosen[0], z.z[0]) && at::equal(chosen[1], k.z[1]));
  const at::Tensor gathered = space.Gather(z, {2, 0}).z;
  EXPECT_TRUE(at::equal(gathered[0], z.z[2]) && at::equal(gathered[1], z.z[0]));
}

TEST(TensorSpaceTest, SeesWhatIsNotFinite) {
  const TensorSpace space = MakeSpace(Random(kField), Random(kNet));
  at::Tensor z = at::ones({4, 2}, at::kDouble);
  z[1][0] = kInfinity;
  z[2][1] = std::nan("");
  EXPECT_EQ(space.Finite(space.Start(z)), (std::vector<bool>{true, false, false, true}));
  const TensorSpace::State error = space.Start(at::full({4, 2}, 1e-3, at::kDouble));
  const TensorSpace::State one = space.Start(at::ones({4, 2}, at::kDouble));
  const PerRow norms =
      space.ErrorNorms(error, one, space.Start(z), PerRow(4, 1e-3), PerRow(4, 1e-3));
  EXPECT_DOUBLE_EQ(norms[0], 0.5);
  EXPECT_FALSE(std::isfinite(norms[1]) || std::isfinite(norms[2]));
}

TEST(RowNumbersTest, LogAbsDeterminantAgreesWithTheLibrary) {
  for (const int64_t n : {1, 2, 3, 7, 20}) {
    const at::Tensor matrices = at::randn({n, 4, n}, at::kDouble);
    const at::Tensor expected =
        std::get<1>(at::linalg_slogdet(matrices.transpose(0, 1).contiguous()));
    EXPECT_LT((LogAbsDeterminants(matrices) - expected).abs().max().item<double>(), 1e-11);
  }
  const at::Tensor zeros = at::zeros({2, 1, 2}, at::kDouble);
  EXPECT_EQ(LogAbsDeterminants(zeros)[0].item<double>(), -kInfinity);
}

}  // namespace
}  // namespace hyperserve
