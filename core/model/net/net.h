// Applies the layers of a spec to tensors: values, or values with forward-mode tangents.
// core/engine and training/ may include this header; it is the interface of core/model that shows
// LibTorch.
//
// All operations are differentiable tensor operations. The trainer runs the same code under
// autograd, with tensors of its own that require gradients, and can differentiate through a trace.
// Net::Make finds errors of shape. Apply trusts its arguments; LibTorch throws where they are wrong
// (see CatchExceptions).
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

// kInvalidArgument names an expected tensor that is missing, or the wanted and the found shape.
absl::Status CheckShapes(const std::map<std::string, Shape>& expected, const TensorMap& tensors);

class FieldPackage;  // core/model/net/field_package.h

// A list of layers with tensors of one device and dtype, or the code of a field. Immutable and
// thread-safe. Copies are cheap: they share layers, tensors and code.
class Net {
 public:
  // Takes every tensor of ExpectedTensors(layers, prefix) from the map and ignores others.
  // kInvalidArgument names a missing tensor, or the wanted and the found shape of a wrong one.
  static absl::StatusOr<Net> Make(const LayerList& layers, std::string_view prefix,
                                  const TensorMap& tensors);
  // A field that is code. It has no tangents (Apply with some throws) and passes no gradient on.
  static Net OfPackage(std::shared_ptr<const FieldPackage> package);

  // Maps x [B, ...] to y [B, ...]. depth [B] and condition [B, features], of the same dtype and
  // device, may be undefined unless uses_depth() or uses_condition(). Batch norm is in eval mode.
  at::Tensor Apply(const at::Tensor& x, const at::Tensor& depth,
                   const at::Tensor& condition = {}) const;
  // The same with tangents. Undefined tangents of the depth, else [T, B], and of the condition,
  // else [T, B, features], count as zeros.
  Dual Apply(const Dual& x, const Dual& depth, const Dual& condition = {}) const;

  bool uses_depth() const { return uses_depth_; }          // whether any layer reads the depth
  bool uses_condition() const { return uses_condition_; }  // or the condition
  bool empty() const { return package_ == nullptr && layers_->empty(); }
  // False for code: Apply with tangents throws then.
  bool has_derivatives() const { return package_ == nullptr; }

 private:
  Net() = default;
  Net(std::vector<BoundLayer> layers, const LayerList& kinds);
  std::shared_ptr<const std::vector<BoundLayer>> layers_;  // null where the net is code
  std::shared_ptr<const FieldPackage> package_;
  bool uses_depth_ = false, uses_condition_ = false;
};

// The nets and weights of one model or correction, on any device and in any dtype. Thread-safe: the
// first use on a device in a dtype converts all tensors, under a lock, and keeps the nets for the
// life of this object. The tensors never require gradients, and nobody may change them in place.
class NetWeights {
 public:
  // `nets` maps a prefix ("stem", "field", "head", "net") to layers. `tensors` are on the CPU and
  // of a floating type. `code` maps further prefixes to nets that are code. Fails as Net::Make
  // does.
  static absl::StatusOr<std::unique_ptr<const NetWeights>> Make(
      std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors,
      std::map<std::string, Net, std::less<>> code = {});

  // The net of a prefix. Throws as LibTorch does, and for a prefix that Make was not given.
  Net Get(std::string_view prefix, at::Device device, at::ScalarType dtype) const;
  // Every tensor by name, as Make was given it.
  const TensorMap& stored() const { return stored_; }
  // Every tensor by name, shared with the nets of Get. Throws as LibTorch does.
  TensorMap Tensors(at::Device device, at::ScalarType dtype) const;

 private:
  struct Converted {
    TensorMap tensors;
    std::map<std::string, Net, std::less<>> nets;  // by prefix
  };

  NetWeights(std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors,
             std::map<std::string, Net, std::less<>> code);
  Converted Convert(at::Device device, at::ScalarType dtype) const;
  // Needs mutex_.
  const Converted& Find(at::Device device, at::ScalarType dtype) const;

  const std::map<std::string, LayerList, std::less<>> nets_;
  const std::map<std::string, Net, std::less<>> code_;
  const TensorMap stored_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. Key: device as text, dtype.
  mutable std::map<std::pair<std::string, at::ScalarType>, Converted> converted_;
};

// Every Dtype has one.
at::ScalarType ScalarTypeOf(Dtype dtype);
// Copies an array into a tensor on the CPU, with the same dtype and shape.
at::Tensor TensorFromView(const TensorView& view);
// Copies a tensor of any device into an array. Throws c10::Error for a dtype that Dtype lacks.
HostTensor HostTensorFrom(const at::Tensor& tensor);

}  // namespace hyperserve
