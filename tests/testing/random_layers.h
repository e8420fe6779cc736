// Layers of every kind, for tests that must hold for all kinds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace hyperserve::fixture {

// A layer and the shape of a row that it takes.
struct LayerExample {
  Layer layer;
  Shape row;
};
// The numbers of the condition that examples read.
inline constexpr int64_t kConditionFeatures = 3;
// At least one of each kind in the table, with fields away from their defaults.
std::vector<LayerExample> LayerExamples();

// A random net of about ten layers, drawn by the seed from all kinds that fit. It maps rows of this
// shape ([features], or [channels, height, width] with even sizes) to rows of the same shape.
LayerList RandomLayers(const Shape& row, uint64_t seed);

}  // namespace hyperserve::fixture
