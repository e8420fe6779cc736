// Classifiers that the fused kernel for images can run, for the tests of its engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve::fixture {

inline Layer Conv3x3(int64_t in, int64_t out) {
  return {Conv2dLayer{.in = in, .out = out, .kernel = 3, .padding = 1}};
}

// Images [1, 12, 10]; state [8, 12, 10]; the field reads the depth; 5 outputs.
inline ModelSpec FusedImageSpec(const Layer& activation) {
  ModelSpec spec;
  spec.input = {.shape = {1, 12, 10}, .unit_range = true, .mean = {0.25}, .deviation = {0.5}};
  spec.stem = {{BatchNormLayer{.channels = 1}}, {AugmentLayer{.layers = {Conv3x3(1, 7)}}}};
  spec.field = {{DepthCatLayer{.first = true}},
                Conv3x3(9, 20),
                activation,
                {DepthCatLayer{}},
                Conv3x3(21, 36),
                activation,
                Conv3x3(36, 8)};
  spec.head = {{MeanPoolLayer{}}, {LinearLayer{.in = 8, .out = 5}}};
  return spec;
}

// The same with a field of separable convolutions, with and without an activation within the pair,
// and of convolutions of a few groups.
inline ModelSpec FusedSeparableSpec() {
  const auto conv = [](int64_t in, int64_t out, int64_t groups) {
    return Layer{Conv2dLayer{.in = in, .out = out, .kernel = 3, .padding = 1, .groups = groups}};
  };
  const auto map = [](int64_t in, int64_t out, int64_t groups = 1) {
    return Layer{Conv2dLayer{.in = in, .out = out, .kernel = 1, .groups = groups}};
  };
  ModelSpec spec = FusedImageSpec({SoftplusLayer{}});
  spec.field = {{DepthCatLayer{}}, conv(9, 9, 9),  map(9, 40),    {SoftplusLayer{}},
                conv(40, 40, 40),  {ReluLayer{}},  map(40, 24),   {SiluLayer{}},
                {DepthCatLayer{}}, map(25, 30, 5), {TanhLayer{}}, conv(30, 16, 2),
                map(16, 12),       map(12, 8)};
  return spec;
}

// A correction of Heun's method that reads everything.
inline HypersolverSpec FusedImageCorrectionSpec() {
  HypersolverSpec spec;
  spec.method = {.method = Method::kHeun};
  spec.eps = {0.05, 1.0};
  spec.steps = {1, 2};
  spec.inputs = {CorrectionInput::kStep,   CorrectionInput::kSlope2, CorrectionInput::kState0,
                 CorrectionInput::kSlope1, CorrectionInput::kState,  CorrectionInput::kDepth};
  spec.net = {Conv3x3(34, 24), {PreluLayer{.slopes = 24}}, Conv3x3(24, 8)};
  return spec;
}

// A learned solver of images: a table without a net, one with a readout at the state's resolution,
// and one with a readout at half of it.
inline HypersolverSpec FusedImageTablesSpec(const Model& model, Coefficients kind) {
  HypersolverSpec spec;
  spec.method = {.method = Method::kLearned};
  spec.base_digest = model.base_digest();
  spec.span = model.spec().span;
  const int64_t channels = model.state_shape()[0];
  const auto map = [](int64_t in, int64_t out) {
    return Layer{Conv2dLayer{.in = in, .out = out, .kernel = 1}};
  };
  spec.tables = {
      {.evaluations = 1, .coefficients = kind, .inputs = {}, .net = {}},
      {.evaluations = 2,
       .coefficients = kind,
       .inputs = {CorrectionInput::kState0, CorrectionInput::kSlopes},
       .net = {map(3 * channels, 12),
               {SiluLayer{}},
               Conv3x3(12, 40),
               {SiluLayer{}},
               map(40, channels)}},
      {.evaluations = 3,
       .coefficients = kind,
       .inputs = {CorrectionInput::kState, CorrectionInput::kSlopes, CorrectionInput::kState0},
       .net = {{PixelUnshuffleLayer{.downscale_factor = 2}},
               map(20 * channels, 16),
               {SiluLayer{}},
               Conv3x3(16, 16),
               {SiluLayer{}},
               map(16, 4 * channels),
               {PixelShuffleLayer{.upscale_factor = 2}}}}};
  return spec;
}

// A classifier that ships, with the learned solver that is served.
struct Shipped {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> learned;
};

inline Shipped ShippedLearned(const std::string& name) {
  const std::string folder = absl::StrCat(ShippedModels(), "/", name);
  const std::string solvers = absl::StrCat(folder, "/hypersolvers/learned");
  const auto model = Model::Load(folder).value();
  const int64_t served = ReadActive(solvers).value().value();
  return {.model = model,
          .learned = Hypersolver::Load(absl::StrCat(solvers, "/", served), *model).value()};
}

}  // namespace hyperserve::fixture
