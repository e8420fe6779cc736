// Flows that the fused kernel can run, for the tests of its engine.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"

namespace hyperserve::fixture {

// Linear layers of these widths with an activation between them.
inline LayerList Mlp(const std::vector<int64_t>& widths, const Layer& activation) {
  LayerList layers;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    if (l > 0) layers.push_back(activation);
    layers.push_back({LinearLayer{.in = widths[l], .out = widths[l + 1]}});
  }
  return layers;
}

// A flow in so many dimensions, data to noise, whose field reads the depth.
inline ModelSpec FusedFlowSpec(const Layer& activation, int64_t dimensions = 2) {
  ModelSpec spec;
  spec.kind = ModelKind::kFlow;
  spec.direction = Direction::kDataToNoise;
  spec.input.shape = {dimensions};
  spec.field = Mlp({dimensions + 1, 40, 64, dimensions}, activation);
  spec.field.insert(spec.field.begin(), {DepthCatLayer{.first = true}});
  return spec;
}

// A correction of Heun's method from noise to data that reads everything.
inline HypersolverSpec FusedCorrectionSpec(int64_t dimensions = 2) {
  HypersolverSpec spec;
  spec.method = {.method = Method::kHeun};
  spec.direction = Direction::kNoiseToData;
  spec.eps = {0.05, 1.0};
  spec.steps = {1, 2};
  spec.inputs = {CorrectionInput::kStep,   CorrectionInput::kSlope2, CorrectionInput::kState0,
                 CorrectionInput::kSlope1, CorrectionInput::kState,  CorrectionInput::kDepth};
  spec.net = Mlp({4 * dimensions + 2, 30, dimensions}, {PreluLayer{.slopes = 30}});
  return spec;
}

// A learned solver from noise to data of a flow in two dimensions: a readout alone, a table with
// one that reads everything, and a table alone.
inline HypersolverSpec FusedTablesSpec(const Model& model, Coefficients kind) {
  HypersolverSpec spec;
  spec.method = {.method = Method::kLearned};
  spec.direction = Direction::kNoiseToData;
  spec.base_digest = model.base_digest();
  spec.span = model.spec().span;
  spec.tables = {
      {.evaluations = 0,
       .coefficients = kind,
       .inputs = {CorrectionInput::kState},
       .net = Mlp({2, 7, 2}, {TanhLayer{}})},
      {.evaluations = 2,
       .coefficients = kind,
       .inputs = {CorrectionInput::kState0, CorrectionInput::kState, CorrectionInput::kSlopes},
       .net = Mlp({8, 20, 2}, {PreluLayer{.slopes = 20}})},
      {.evaluations = 3, .coefficients = kind, .inputs = {}, .net = {}}};
  return spec;
}

}  // namespace hyperserve::fixture
