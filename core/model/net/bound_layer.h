// The data of a forward pass: values with tangents, and layers with their tensors. Tensors are
// shared, not copied, and nobody changes one in place.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace hyperserve {

// A value and its derivatives along T directions; no derivatives where `tangents` is undefined.
struct Dual {
  at::Tensor value;     // [B, ...]
  at::Tensor tangents;  // [T, B, ...]
};

// A layer with its tensors. Tensors that its kind does not have are undefined.
struct BoundLayer {
  Layer layer;
  at::Tensor weight, bias, running_mean, running_var;
  at::Tensor in_weight, in_bias, out_weight, out_bias;  // of attention
  std::vector<std::vector<BoundLayer>> inner;           // its inner lists, as InnerLists
};

}  // namespace hyperserve
