// Random tensors for the layers of a test, and nets made of them.
#pragma once

#include <ATen/ATen.h>

#include "core/model/layers/kind.h"
#include "core/model/net/net.h"

namespace hyperserve::fixture {

// Normals of this dtype for every tensor of the layers, with the prefix "net"; variances are
// positive. Every call returns the same numbers.
inline TensorMap RandomTensors(const LayerList& layers, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(1);
  TensorMap tensors;
  for (const auto& [name, tensor] : ListTensors(layers, "net")) {
    tensors[name] = at::randn(tensor.shape, dtype);
    if (tensor.role == TensorRole::kRunningVar) tensors[name].abs_().add_(0.1);
  }
  return tensors;
}

inline at::Tensor Apply(const LayerList& layers, const TensorMap& tensors, const at::Tensor& x,
                        const at::Tensor& depth = {}, const at::Tensor& condition = {}) {
  return Net::Make(layers, "net", tensors).value().Apply(x, depth, condition);
}

// In double.
inline at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

// Infinite where the shapes differ.
inline double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  return (a - b).abs().max().item<double>();
}

}  // namespace hyperserve::fixture
