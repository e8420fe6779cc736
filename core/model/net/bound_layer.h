// What the forward pass of a layer works on: values with tangents, and a layer with its tensors.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace hyperserve {

// A value and its derivatives along T directions. Where `tangents` is undefined none are carried.
struct Dual {
  at::Tensor value;     // [B, ...]
  at::Tensor tangents;  // [T, B, ...]
};

// A layer with its tensors; one not needed by the layer's kind is undefined.
struct BoundLayer {
  Layer layer;
  at::Tensor weight, bias, running_mean, running_var;
  std::vector<BoundLayer> inner;  // those within the layer
};

}  // namespace hyperserve
