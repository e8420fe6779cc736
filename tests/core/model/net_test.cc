// Nets as a whole: tangents against autograd, gradients of both, and what a weights file must hold.
#include "core/model/net/net.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/spec/spec.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

using fixture::Apply, fixture::MaxDifference, fixture::Random, fixture::RandomTensors;

// <u, J t> computed by our tangents against <J^T u, t> computed by autograd.
void ExpectTangentsAgree(const LayerList& layers, const Shape& row) {
  const TensorMap tensors = RandomTensors(layers);
  const Net net = Net::Make(layers, "net", tensors).value();
  Shape shape = row;
  shape.insert(shape.begin(), 3);
  at::Tensor x = Random(shape).requires_grad_();
  at::Tensor depth = Random({3}).requires_grad_();
  shape.insert(shape.begin(), 5);
  const at::Tensor t = Random(shape), depth_t = Random({5, 3});
  at::Tensor condition = Random({3, fixture::kConditionFeatures}).requires_grad_();
  const at::Tensor condition_t = Random({5, 3, fixture::kConditionFeatures});
  const Dual y = net.Apply({x, t}, {depth, depth_t}, {condition, condition_t});
  EXPECT_EQ(MaxDifference(y.value, net.Apply(x, depth, condition)), 0.0);
  const at::Tensor u = Random(y.value.sizes());
  const auto gradients = torch::autograd::grad({(y.value * u).sum()}, {x, depth, condition}, {},
                                               /*retain_graph=*/true, /*create_graph=*/false,
                                               /*allow_unused=*/true);
  for (int64_t i = 0; i < 5; ++i) {
    double expected = (gradients[0] * t[i]).sum().item<double>();
    if (gradients[1].defined()) expected += (gradients[1] * depth_t[i]).sum().item<double>();
    if (gradients[2].defined()) expected += (gradients[2] * condition_t[i]).sum().item<double>();
    EXPECT_NEAR((u * y.tangents[i]).sum().item<double>(), expected,
                1e-11 * (1 + std::abs(expected)));
  }
}

TEST(NetTest, TangentsAgreeWithAutograd) {
  for (const fixture::LayerExample& example : fixture::LayerExamples()) {
    SCOPED_TRACE(std::string(LayerName(example.layer)) + " of " + ShapeText(example.row));
    ExpectTangentsAgree({example.layer}, example.row);
  }
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    ExpectTangentsAgree(fixture::RandomLayers({4}, seed), {4});
    ExpectTangentsAgree(fixture::RandomLayers({2, 4, 6}, seed), {2, 4, 6});
  }
}

TEST(NetTest, KnowsWhetherTheDepthIsRead) {
  const Layer depth = {DepthCatLayer{}}, inner = {ResidualLayer{.layers = {depth}}};
  const auto uses = [](const LayerList& layers) {
    return Net::Make(layers, "net", {}).value().uses_depth();
  };
  EXPECT_FALSE(uses({{SeluLayer{}}, {ResidualLayer{.layers = {{SinLayer{}}}}}}));
  EXPECT_TRUE(uses({depth}));
  EXPECT_TRUE(uses({{SeluLayer{}}, {AugmentLayer{.layers = {inner}}}}));
}

// The trainer maximises a likelihood: it needs gradients of a trace made of tangents.
TEST(NetTest, TracesCanBeDifferentiated) {
  const LayerList layers = {
      {LinearLayer{.in = 2, .out = 5}}, {SoftplusLayer{}}, {LinearLayer{.in = 5, .out = 2}}};
  TensorMap tensors = RandomTensors(layers);
  at::Tensor& weight = tensors["net.0.weight"];
  weight.requires_grad_();
  const at::Tensor x = Random({1, 2}), unit = at::eye(2, at::kDouble).view({2, 1, 2});
  const auto trace = [&] {
    const Dual y = Net::Make(layers, "net", tensors).value().Apply({x, unit}, {});
    return y.tangents[0][0][0] + y.tangents[1][0][1];
  };
  trace().backward();
  const double gradient = weight.grad()[1][0].item<double>();
  const at::NoGradGuard no_grad;
  const double h = 1e-6;
  weight[1][0] += h;
  const double above = trace().item<double>();
  weight[1][0] -= 2 * h;
  EXPECT_NEAR(gradient, (above - trace().item<double>()) / (2 * h), 1e-8);
}

// In float32 on the CPU convolutions take a path of their own: the trainer needs its gradients too,
// and those of its gradients.
TEST(NetTest, ConvolutionsInSinglePrecisionHaveTheGradientsOfDoubles) {
  const LayerList layers = {{Conv2dLayer{.in = 2, .out = 3, .kernel = 3, .padding = 1}},
                            {TanhLayer{}},
                            {Conv2dLayer{.in = 3, .out = 2, .kernel = 1}}};
  const TensorMap doubles = RandomTensors(layers);
  const at::Tensor x = Random({2, 2, 7, 7});
  const auto gradients = [&](at::ScalarType dtype) {
    TensorMap tensors;
    std::vector<at::Tensor> parameters;
    for (const auto& [name, tensor] : doubles) {
      tensors[name] = tensor.to(dtype).detach().clone().requires_grad_();
      parameters.push_back(tensors[name]);
    }
    const at::Tensor input = x.to(dtype).requires_grad_();
    const at::Tensor loss = Apply(layers, tensors, input).square().sum();
    const at::Tensor slope =
        torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    auto found = torch::autograd::grad({loss + slope.square().sum()}, parameters);
    found.push_back(slope.detach());
    return found;
  };
  const auto single = gradients(at::kFloat), expected = gradients(at::kDouble);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double size = expected[i].abs().max().item<double>();
    EXPECT_LT(MaxDifference(single[i].to(at::kDouble), expected[i]), 1e-5 * size);
  }
}

TEST(NetTest, NamesWhatIsMissingOrOfAnotherShape) {
  const LayerList layers = {{LinearLayer{.in = 2, .out = 3}}};
  TensorMap tensors = RandomTensors(layers);
  tensors["net.0.bias"] = Random({4});
  absl::Status status = Net::Make(layers, "net", tensors).status();
  EXPECT_EQ(status.message(), "tensor 'net.0.bias': shape wanted [3], found [4]");
  tensors.erase("net.0.bias");
  status = Net::Make(layers, "net", tensors).status();
  EXPECT_EQ(status.message(), "tensor 'net.0.bias' [3] is missing");
}

}  // namespace
}  // namespace hyperserve
