#include "core/model/spec/layer_proto.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/model/spec/spec_limits.h"

namespace hyperserve {
namespace {

using spec_limits::kChannels;
using spec_limits::kKernel;

// Reads the layers of one file; counts them, nested ones included.
class Reader {
 public:
  absl::StatusOr<LayerList> Read(const LayerProtos& protos, const std::string& path,
                                 const int nesting) {
    if (nesting > spec_limits::kNesting) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": augments are nested deeper than the limit of ", spec_limits::kNesting));
    }
    LayerList layers;
    for (int i = 0; i < protos.size(); ++i) {
      if (++count_ > spec_limits::kLayers) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": more layers than the limit of ", spec_limits::kLayers));
      }
      HS_ASSIGN_OR_RETURN(Layer layer,
                          ReadLayer(protos[i], absl::StrCat(path, "[", i, "]"), nesting));
      layers.push_back(std::move(layer));
    }
    return layers;
  }

 private:
  static absl::StatusOr<Layer> Linear(const v1::Layer::Linear& proto, const std::string& path) {
    HS_RETURN_IF_ERROR(CheckRange(path + ".in", proto.in(), 1, kChannels));
    HS_RETURN_IF_ERROR(CheckRange(path + ".out", proto.out(), 1, kChannels));
    return Layer{LinearLayer{
        .in = proto.in(), .out = proto.out(), .bias = !proto.has_bias() || proto.bias()}};
  }

  static absl::StatusOr<Layer> Conv2d(const v1::Layer::Conv2d& proto, const std::string& path) {
    const int64_t stride = proto.has_stride() ? proto.stride() : 1;
    HS_RETURN_IF_ERROR(CheckRange(path + ".in", proto.in(), 1, kChannels));
    HS_RETURN_IF_ERROR(CheckRange(path + ".out", proto.out(), 1, kChannels));
    HS_RETURN_IF_ERROR(CheckRange(path + ".kernel", proto.kernel(), 1, kKernel));
    HS_RETURN_IF_ERROR(CheckRange(path + ".padding", proto.padding(), 0, kKernel));
    HS_RETURN_IF_ERROR(CheckRange(path + ".stride", stride, 1, kKernel));
    return Layer{Conv2dLayer{.in = proto.in(),
                             .out = proto.out(),
                             .kernel = proto.kernel(),
                             .padding = proto.padding(),
                             .stride = stride,
                             .bias = !proto.has_bias() || proto.bias()}};
  }

  static absl::StatusOr<Layer> BatchNorm(const v1::Layer::BatchNorm& proto,
                                         const std::string& path) {
    BatchNormLayer norm{.channels = proto.channels()};
    if (proto.has_eps()) norm.eps = proto.eps();
    HS_RETURN_IF_ERROR(CheckRange(path + ".channels", norm.channels, 1, kChannels));
    HS_RETURN_IF_ERROR(CheckPositive(path + ".eps", norm.eps));
    return Layer{norm};
  }

  static absl::StatusOr<Layer> GroupNorm(const v1::Layer::GroupNorm& proto,
                                         const std::string& path) {
    GroupNormLayer norm{.groups = proto.groups(), .channels = proto.channels()};
    if (proto.has_eps()) norm.eps = proto.eps();
    HS_RETURN_IF_ERROR(CheckRange(path + ".channels", norm.channels, 1, kChannels));
    HS_RETURN_IF_ERROR(CheckRange(path + ".groups", norm.groups, 1, norm.channels));
    HS_RETURN_IF_ERROR(CheckPositive(path + ".eps", norm.eps));
    if (norm.channels % norm.groups != 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".groups: ", norm.groups,
                                                     " does not divide channels ", norm.channels));
    }
    return Layer{norm};
  }

  static absl::StatusOr<Layer> Prelu(const v1::Layer::Prelu& proto, const std::string& path) {
    HS_RETURN_IF_ERROR(CheckRange(path + ".slopes", proto.slopes(), 1, kChannels));
    return Layer{PreluLayer{.slopes = proto.slopes()}};
  }

  static absl::StatusOr<Layer> AvgPool(const v1::Layer::AvgPool& proto, const std::string& path) {
    const int64_t stride = proto.has_stride() ? proto.stride() : proto.kernel();
    HS_RETURN_IF_ERROR(CheckRange(path + ".kernel", proto.kernel(), 1, kKernel));
    HS_RETURN_IF_ERROR(CheckRange(path + ".stride", stride, 1, kKernel));
    HS_RETURN_IF_ERROR(CheckRange(path + ".padding", proto.padding(), 0, proto.kernel() / 2));
    return Layer{
        AvgPoolLayer{.kernel = proto.kernel(), .stride = stride, .padding = proto.padding()}};
  }

  absl::StatusOr<Layer> ReadLayer(const v1::Layer& proto, const std::string& path,
                                  const int nesting) {
    switch (proto.kind_case()) {
      case v1::Layer::kLinear:
        return Linear(proto.linear(), path + ".linear");
      case v1::Layer::kConv2D:
        return Conv2d(proto.conv2d(), path + ".conv2d");
      case v1::Layer::kBatchNorm:
        return BatchNorm(proto.batch_norm(), path + ".batch_norm");
      case v1::Layer::kGroupNorm:
        return GroupNorm(proto.group_norm(), path + ".group_norm");
      case v1::Layer::kPrelu:
        return Prelu(proto.prelu(), path + ".prelu");
      case v1::Layer::kAvgPool:
        return AvgPool(proto.avg_pool(), path + ".avg_pool");
      case v1::Layer::kSoftplus:
        return Layer{ActivationLayer{ActivationKind::kSoftplus}};
      case v1::Layer::kTanh:
        return Layer{ActivationLayer{ActivationKind::kTanh}};
      case v1::Layer::kRelu:
        return Layer{ActivationLayer{ActivationKind::kRelu}};
      case v1::Layer::kSilu:
        return Layer{ActivationLayer{ActivationKind::kSilu}};
      case v1::Layer::kGelu:
        return Layer{ActivationLayer{ActivationKind::kGelu}};
      case v1::Layer::kSigmoid:
        return Layer{ActivationLayer{ActivationKind::kSigmoid}};
      case v1::Layer::kMeanPool:
        return Layer{MeanPoolLayer{}};
      case v1::Layer::kFlatten:
        return Layer{FlattenLayer{}};
      case v1::Layer::kDepthCat:
        return Layer{DepthCatLayer{}};
      case v1::Layer::kAugment: {
        HS_ASSIGN_OR_RETURN(LayerList inner,
                            Read(proto.augment().layers(), path + ".augment.layers", nesting + 1));
        return Layer{AugmentLayer{std::move(inner)}};
      }
      case v1::Layer::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(absl::StrCat(path, ": a layer names exactly one kind"));
  }

  int64_t count_ = 0;
};

struct Writer {
  v1::Layer& proto;

  void operator()(const LinearLayer& linear) const {
    v1::Layer::Linear& to = *proto.mutable_linear();
    to.set_in(linear.in);
    to.set_out(linear.out);
    if (!linear.bias) to.set_bias(false);
  }
  void operator()(const Conv2dLayer& conv) const {
    v1::Layer::Conv2d& to = *proto.mutable_conv2d();
    to.set_in(conv.in);
    to.set_out(conv.out);
    to.set_kernel(conv.kernel);
    to.set_padding(conv.padding);
    if (conv.stride != 1) to.set_stride(conv.stride);
    if (!conv.bias) to.set_bias(false);
  }
  void operator()(const BatchNormLayer& norm) const {
    v1::Layer::BatchNorm& to = *proto.mutable_batch_norm();
    to.set_channels(norm.channels);
    if (norm.eps != BatchNormLayer{}.eps) to.set_eps(norm.eps);
  }
  void operator()(const GroupNormLayer& norm) const {
    v1::Layer::GroupNorm& to = *proto.mutable_group_norm();
    to.set_groups(norm.groups);
    to.set_channels(norm.channels);
    if (norm.eps != GroupNormLayer{}.eps) to.set_eps(norm.eps);
  }
  void operator()(const ActivationLayer& activation) const {
    switch (activation.kind) {
      case ActivationKind::kSoftplus:
        return void(proto.mutable_softplus());
      case ActivationKind::kTanh:
        return void(proto.mutable_tanh());
      case ActivationKind::kRelu:
        return void(proto.mutable_relu());
      case ActivationKind::kSilu:
        return void(proto.mutable_silu());
      case ActivationKind::kGelu:
        return void(proto.mutable_gelu());
      case ActivationKind::kSigmoid:
        return void(proto.mutable_sigmoid());
    }
  }
  void operator()(const PreluLayer& prelu) const {
    proto.mutable_prelu()->set_slopes(prelu.slopes);
  }
  void operator()(const AvgPoolLayer& pool) const {
    v1::Layer::AvgPool& to = *proto.mutable_avg_pool();
    to.set_kernel(pool.kernel);
    if (pool.stride != pool.kernel) to.set_stride(pool.stride);
    to.set_padding(pool.padding);
  }
  void operator()(const MeanPoolLayer&) const { proto.mutable_mean_pool(); }
  void operator()(const FlattenLayer&) const { proto.mutable_flatten(); }
  void operator()(const DepthCatLayer&) const { proto.mutable_depth_cat(); }
  void operator()(const AugmentLayer& augment) const {
    LayersToProto(augment.layers, *proto.mutable_augment()->mutable_layers());
  }
};

}  // namespace

absl::StatusOr<LayerList> LayersFromProto(const LayerProtos& protos, const std::string& path) {
  return Reader().Read(protos, path, 0);
}

void LayersToProto(const LayerList& layers, LayerProtos& protos) {
  for (const Layer& layer : layers) std::visit(Writer{*protos.Add()}, layer.kind);
}

absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", value, " is outside [", low, ", ", high, "]"));
}

absl::Status CheckPositive(const std::string& path, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", value, " is not a finite number above 0"));
}

}  // namespace hyperserve
