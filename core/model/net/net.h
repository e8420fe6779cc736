// The layers of a spec applied to tensors: values, and values with forward-mode tangents. The one
// LibTorch header that leaves core/model, for core/engine and training/ only.
//
// Everything is made of differentiable tensor operations: the trainer runs the same code under
// autograd, with tensors of its own that require a gradient, and can differentiate through a trace.
// Errors of shape are found when a Net is made; Apply trusts its arguments (LibTorch throws where
// they are wrong; see CatchExceptions).
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/spec/spec.h"

namespace hyperserve {

using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

// A list of layers with tensors of one device and dtype. Immutable, cheap to copy (it shares its
// tensors), usable by many threads at once.
class Net {
 public:
  // Looks up every tensor of ExpectedTensors(layers, prefix). kInvalidArgument names the tensor
  // that is missing or the shape that was wanted and the one that was found. Other tensors in the
  // map are ignored.
  static absl::StatusOr<Net> Make(const LayerList& layers, std::string_view prefix,
                                  const TensorMap& tensors);

  // x [B, ...] to y [B, ...]; depth [B], of the same dtype and device, may be undefined where the
  // net does not use it. Batch norm is in eval mode: the statistics are those of the tensors.
  at::Tensor Apply(const at::Tensor& x, const at::Tensor& depth) const;
  // The same with tangents; depth's tangents [T, B] are zero where undefined.
  Dual Apply(const Dual& x, const Dual& depth) const;

  bool uses_depth() const { return uses_depth_; }  // does any layer read the depth?
  bool empty() const { return layers_.empty(); }

 private:
  Net(std::vector<BoundLayer> layers, bool uses_depth);
  std::vector<BoundLayer> layers_;
  bool uses_depth_ = false;
};

// The nets of one artefact with the weights of its file, on whatever device and in whatever dtype
// they are asked for. Thread-safe; conversions are made on first use and kept. What it hands out
// never requires a gradient.
class NetWeights {
 public:
  // `nets`: prefix ("stem", "field", "head", "net") to layers. `tensors`: on the CPU, of a
  // floating type, with every tensor that the layers expect.
  static absl::StatusOr<std::unique_ptr<const NetWeights>> Make(
      std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors);

  // The net of this prefix. Precondition: the prefix is one that was given to Make.
  Net Get(std::string_view prefix, at::Device device, at::ScalarType dtype) const;
  // Every tensor, as Get has them.
  TensorMap Tensors(at::Device device, at::ScalarType dtype) const;

 private:
  NetWeights(std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors);
  const std::map<std::string, LayerList, std::less<>> nets_;
  const TensorMap stored_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. Key: device as text, dtype.
  mutable std::map<std::pair<std::string, at::ScalarType>, TensorMap> converted_;
};

// Tensors of the same bytes, dtype and shape; the copy belongs to the caller. F32, F64, F16, U8,
// I64.
at::Tensor TensorFromView(const TensorView& view);
// The other way; `tensor` may live on any device. Its dtype must be one of Dtype's.
HostTensor HostTensorFrom(const at::Tensor& tensor);

}  // namespace hyperserve
