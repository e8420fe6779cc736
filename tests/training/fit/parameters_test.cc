#include "training/fit/parameters.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/net/net.h"
#include "tests/testing/random_layers.h"
#include "training/data/random.h"

namespace hyperserve {
namespace {

RandomStream Stream() { return RandomStream(7, RandomPurpose::kWeights); }

TEST(InitialTensorsTest, AreThoseThatEveryKindExpects) {
  for (const fixture::LayerExample& example : fixture::LayerExamples()) {
    RandomStream stream = Stream();
    std::map<std::string, Shape> found;
    for (const auto& [name, tensor] : InitialTensors({example.layer}, "net", stream)) {
      found[name] = {tensor.sizes().begin(), tensor.sizes().end()};
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
    }
    EXPECT_EQ(found, ExpectedTensors({example.layer}, "net")) << LayerName(example.layer);
  }
}

// The same seed gives the same weights for ever: numbers are drawn in the order of the layers,
// weight before bias.
TEST(InitialTensorsTest, AreDrawnInTheOrderOfTheLayers) {
  const LayerList layers = {
      {Conv2dLayer{.in = 4, .out = 2, .kernel = {3, 1}, .groups = 2}},
      {ResidualLayer{.layers = {{LayerNormLayer{.normalized_shape = {2, 4, 5}}},
                                {Conv2dLayer{.in = 2, .out = 2, .bias = false}}}}},
      {MeanPoolLayer{}},
      {PreluLayer{}},
      {LinearLayer{.in = 2, .out = 3}}};
  RandomStream stream = Stream(), again = Stream();
  const TensorMap tensors = InitialTensors(layers, "net", stream);
  const auto expect_drawn = [&](const char* name, double fan_in) {
    const at::Tensor& tensor = tensors.at(name);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double wanted = (2.0 * again.Uniform() - 1.0) * (1.0 / std::sqrt(fan_in));
      EXPECT_EQ(tensor.flatten()[i].item<float>(), static_cast<float>(wanted)) << name << " " << i;
    }
  };
  expect_drawn("net.0.weight", 2 * 3);  // inputs that one output reads
  expect_drawn("net.0.bias", 2 * 3);
  expect_drawn("net.1.layers.1.weight", 2);
  expect_drawn("net.4.weight", 2);
  expect_drawn("net.4.bias", 2);
  EXPECT_TRUE((tensors.at("net.1.layers.0.weight") == 1).all().item<bool>());
  EXPECT_TRUE((tensors.at("net.1.layers.0.bias") == 0).all().item<bool>());
  EXPECT_TRUE((tensors.at("net.3.weight") == 0.25).all().item<bool>());
}

// Layers without tensors, like pixel_shuffle, may stand behind the last one that has any.
TEST(ZeroLastLayerTest, ZeroesTheLastLayerThatHasTensors) {
  const LayerList layers = {{LinearLayer{.in = 2, .out = 3}},
                            {LinearLayer{.in = 3, .out = 4}},
                            {PixelShuffleLayer{.upscale_factor = 2}}};
  RandomStream stream = Stream();
  TensorMap tensors = InitialTensors(layers, "net", stream);
  ZeroLastLayer(layers, "net", tensors);
  EXPECT_FALSE(tensors.at("net.1.weight").any().item<bool>());
  EXPECT_FALSE(tensors.at("net.1.bias").any().item<bool>());
  EXPECT_TRUE(tensors.at("net.0.weight").all().item<bool>());
}

}  // namespace
}  // namespace hyperserve
