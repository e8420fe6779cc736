// Layers against formulas written out as loops, and tangents against autograd.
#include "core/model/net/net.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "core/io/tensor.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

at::Tensor Random(at::IntArrayRef shape) { return torch::randn(shape, at::kDouble); }

// Normals for every tensor that the layers expect; variances are positive.
TensorMap RandomTensors(const LayerList& layers) {
  torch::manual_seed(1);
  TensorMap tensors;
  for (const auto& [name, shape] : ExpectedTensors(layers, "net")) {
    tensors[name] = Random(shape);
    if (name.find("running_var") != std::string::npos) tensors[name] = tensors[name].abs() + 0.1;
  }
  return tensors;
}

double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

constexpr double kRounding = 1e-13;

// Cross-correlation with zero padding, as the format's page says.
at::Tensor NaiveConv(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, int64_t stride,
                     int64_t padding) {
  const int64_t k = w.size(2), height = (x.size(2) + 2 * padding - k) / stride + 1,
                width = (x.size(3) + 2 * padding - k) / stride + 1;
  at::Tensor y = at::zeros({x.size(0), w.size(0), height, width}, at::kDouble);
  auto in = x.accessor<double, 4>(), weight = w.accessor<double, 4>(),
       out = y.accessor<double, 4>();
  for (int64_t n = 0; n < x.size(0); ++n) {
    for (int64_t o = 0; o < w.size(0); ++o) {
      for (int64_t i = 0; i < height * width; ++i) {
        double sum = b[o].item<double>();
        for (int64_t c = 0; c < x.size(1); ++c) {
          for (int64_t j = 0; j < k * k; ++j) {
            const int64_t row = i / width * stride + j / k - padding;
            const int64_t column = i % width * stride + j % k - padding;
            if (row < 0 || column < 0 || row >= x.size(2) || column >= x.size(3)) continue;
            sum += weight[o][c][j / k][j % k] * in[n][c][row][column];
          }
        }
        out[n][o][i / width][i % width] = sum;
      }
    }
  }
  return y;
}

at::Tensor Apply(const LayerList& layers, const TensorMap& tensors, const at::Tensor& x,
                 const at::Tensor& depth = {}) {
  return Net::Make(layers, "net", tensors).value().Apply(x, depth);
}

TEST(NetTest, ConvolutionIsTheWrittenOutSum) {
  for (const auto& [kernel, padding, stride] :
       {std::tuple{3, 1, 1}, std::tuple{3, 0, 2}, std::tuple{1, 0, 1}, std::tuple{2, 1, 1}}) {
    const LayerList layers = {
        {Conv2dLayer{.in = 3, .out = 4, .kernel = kernel, .padding = padding, .stride = stride}}};
    TensorMap tensors = RandomTensors(layers);
    const at::Tensor x = Random({2, 3, 6, 5});
    const at::Tensor expected =
        NaiveConv(x, tensors["net.0.weight"], tensors["net.0.bias"], stride, padding);
    EXPECT_LT(MaxDifference(Apply(layers, tensors, x), expected), kRounding);
  }
}

TEST(NetTest, LinearIsRowsTimesColumns) {
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

TEST(NetTest, ActivationsAreTheirFormulas) {
  const std::pair<ActivationKind, double (*)(double)> cases[] = {
      {ActivationKind::kSoftplus, [](double a) { return std::log(1 + std::exp(a)); }},
      {ActivationKind::kTanh, [](double a) { return std::tanh(a); }},
      {ActivationKind::kRelu, [](double a) { return std::max(a, 0.0); }},
      {ActivationKind::kSilu, [](double a) { return a / (1 + std::exp(-a)); }},
      {ActivationKind::kGelu, [](double a) { return a * std::erfc(-a / std::sqrt(2.0)) / 2; }},
      {ActivationKind::kSigmoid, [](double a) { return 1 / (1 + std::exp(-a)); }},
  };
  const at::Tensor x = torch::linspace(-30, 30, 601, at::kDouble).view({601, 1});
  for (const auto& [kind, formula] : cases) {
    const at::Tensor y = Apply({{ActivationLayer{kind}}}, {}, x);
    for (int64_t i = 0; i < x.size(0); ++i) {
      const double a = x[i][0].item<double>();
      EXPECT_NEAR(y[i][0].item<double>(), formula(a), kRounding)
          << static_cast<int>(kind) << " " << a;
    }
  }
}

TEST(NetTest, SoftplusHoldsAtTheEndsAndHasItsSlopeAtZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  at::Tensor x = at::tensor({0.0, 800.0, -800.0, infinity}, at::kDouble).view({4, 1});
  const at::Tensor y = Apply({{ActivationLayer{ActivationKind::kSoftplus}}}, {}, x);
  EXPECT_EQ(y[0][0].item<double>(), std::log(2.0));
  EXPECT_EQ(y[1][0].item<double>(), 800.0);
  EXPECT_EQ(y[2][0].item<double>(), 0.0);
  EXPECT_EQ(y[3][0].item<double>(), infinity);
  at::Tensor zero = at::zeros({1, 1}, at::kDouble).requires_grad_();
  Apply({{ActivationLayer{ActivationKind::kSoftplus}}}, {}, zero).sum().backward();
  EXPECT_EQ(zero.grad().item<double>(), 0.5);
}

TEST(NetTest, NormsPoolsAndShapesAreTheirFormulas) {
  const at::Tensor x = Random({2, 4, 4, 6});
  LayerList layers = {{BatchNormLayer{.channels = 4, .eps = 1e-3}}};
  TensorMap t = RandomTensors(layers);
  at::Tensor y = Apply(layers, t, x);
  for (int64_t c = 0; c < 4; ++c) {
    const auto of = [&](const char* name) {
      return t[std::string("net.0.") + name][c].item<double>();
    };
    const at::Tensor expected =
        (x.select(1, c) - of("running_mean")) / std::sqrt(of("running_var") + 1e-3) * of("weight") +
        of("bias");
    EXPECT_LT(MaxDifference(y.select(1, c), expected), 1e-12);
  }
  layers = {{GroupNormLayer{.groups = 2, .channels = 4, .eps = 1e-3}}};
  t = RandomTensors(layers);
  y = Apply(layers, t, x);
  for (int64_t c = 0; c < 4; ++c) {
    const at::Tensor group = x[1].narrow(0, c / 2 * 2, 2);
    const double mean = group.mean().item<double>(), square = (group * group).mean().item<double>();
    const at::Tensor expected = (x[1][c] - mean) / std::sqrt(square - mean * mean + 1e-3) *
                                    t["net.0.weight"][c].item<double>() +
                                t["net.0.bias"][c].item<double>();
    EXPECT_LT(MaxDifference(y[1][c], expected), 1e-12);
  }
  y = Apply({{AvgPoolLayer{.kernel = 2, .stride = 2, .padding = 1}}}, {}, x);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 4, 3, 4}));
  EXPECT_NEAR(y[0][0][0][0].item<double>(), x[0][0][0][0].item<double>() / 4, kRounding);
  EXPECT_NEAR(y[1][2][1][1].item<double>(),
              x[1][2].narrow(0, 1, 2).narrow(1, 1, 2).sum().item<double>() / 4, kRounding);
  y = Apply({{MeanPoolLayer{}}}, {}, x);
  EXPECT_NEAR(y[1][3].item<double>(), x[1][3].sum().item<double>() / 24, kRounding);
  EXPECT_EQ(Apply({{FlattenLayer{}}}, {}, x).sizes(), (std::vector<int64_t>{2, 96}));
}

TEST(NetTest, PreluDepthAndAugment) {
  const at::Tensor x = Random({2, 3, 2, 2}), depth = at::tensor({0.25, 0.75}, at::kDouble);
  for (const int64_t slopes : {1, 3}) {
    const LayerList layers = {{PreluLayer{.slopes = slopes}}};
    TensorMap t = RandomTensors(layers);
    const at::Tensor y = Apply(layers, t, x);
    for (int64_t c = 0; c < 3; ++c) {
      const double slope = t["net.0.weight"][slopes == 1 ? 0 : c].item<double>();
      const at::Tensor v = x.select(1, c);
      EXPECT_EQ(MaxDifference(y.select(1, c), at::where(v > 0, v, v * slope)), 0.0);
    }
  }
  const at::Tensor with_depth = Apply({{DepthCatLayer{}}}, {}, x, depth);
  EXPECT_TRUE(at::equal(with_depth.narrow(1, 0, 3), x));
  EXPECT_TRUE(at::equal(with_depth[1][3], at::full({2, 2}, 0.75, at::kDouble)));
  const LayerList layers = {
      {AugmentLayer{.layers = {{DepthCatLayer{}}, {ActivationLayer{ActivationKind::kTanh}}}}}};
  const at::Tensor y = Apply(layers, {}, x, depth);
  EXPECT_TRUE(at::equal(y, at::cat({at::tanh(with_depth), x}, 1)));
}

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
  const Dual y = net.Apply({x, t}, {depth, depth_t});
  EXPECT_EQ(MaxDifference(y.value, net.Apply(x, depth)), 0.0);
  const at::Tensor u = Random(y.value.sizes());
  const auto gradients = torch::autograd::grad({(y.value * u).sum()}, {x, depth}, {},
                                               /*retain_graph=*/true, /*create_graph=*/false,
                                               /*allow_unused=*/true);
  for (int64_t i = 0; i < 5; ++i) {
    double expected = (gradients[0] * t[i]).sum().item<double>();
    if (gradients[1].defined()) expected += (gradients[1] * depth_t[i]).sum().item<double>();
    EXPECT_NEAR((u * y.tangents[i]).sum().item<double>(), expected,
                1e-11 * (1 + std::abs(expected)));
  }
}

TEST(NetTest, TangentsAgreeWithAutograd) {
  const Shape images = {4, 6, 6}, vectors = {4};
  const std::vector<Layer> anywhere = {
      {BatchNormLayer{.channels = 4}},
      {GroupNormLayer{.groups = 2, .channels = 4}},
      {PreluLayer{.slopes = 1}},
      {PreluLayer{.slopes = 4}},
      {DepthCatLayer{}},
      {FlattenLayer{}},
      {ActivationLayer{ActivationKind::kSoftplus}},
      {ActivationLayer{ActivationKind::kTanh}},
      {ActivationLayer{ActivationKind::kRelu}},
      {ActivationLayer{ActivationKind::kSilu}},
      {ActivationLayer{ActivationKind::kGelu}},
      {ActivationLayer{ActivationKind::kSigmoid}},
      {AugmentLayer{.layers = {{DepthCatLayer{}}, {ActivationLayer{ActivationKind::kTanh}}}}}};
  for (const Layer& layer : anywhere) {
    ExpectTangentsAgree({layer}, images);
    ExpectTangentsAgree({layer}, vectors);
  }
  for (const Layer& layer :
       {Layer{Conv2dLayer{.in = 4, .out = 3, .kernel = 3, .padding = 1, .stride = 2}},
        Layer{AvgPoolLayer{.kernel = 3, .stride = 2, .padding = 1}}, Layer{MeanPoolLayer{}}}) {
    ExpectTangentsAgree({layer}, images);
  }
  ExpectTangentsAgree({{LinearLayer{.in = 4, .out = 7, .bias = false}},
                       {ActivationLayer{}},
                       {LinearLayer{.in = 7, .out = 2}}},
                      vectors);
}

// The trainer maximises a likelihood: it needs gradients of a trace made of tangents.
TEST(NetTest, TracesCanBeDifferentiated) {
  const LayerList layers = {
      {LinearLayer{.in = 2, .out = 5}}, {ActivationLayer{}}, {LinearLayer{.in = 5, .out = 2}}};
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
                            {ActivationLayer{ActivationKind::kTanh}},
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
