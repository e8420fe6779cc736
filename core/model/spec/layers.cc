// What a layer makes of a row's shape, what it costs, and which tensors it needs: one overload a
// kind.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"

namespace hyperserve {
namespace {

absl::Status Wants(const std::string& what, const Shape& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("wants rows of ", what, ", found ", ShapeText(found)));
}

// Shape after one layer; `macs` grows by its multiply-accumulates.
struct Trace {
  const Shape& input;
  int64_t& macs;

  absl::StatusOr<Shape> operator()(const LinearLayer& linear) const {
    if (input.size() != 1 || input[0] != linear.in) {
      return Wants(absl::StrCat("[", linear.in, "]"), input);
    }
    macs += linear.in * linear.out;
    return Shape{linear.out};
  }

  absl::StatusOr<Shape> operator()(const Conv2dLayer& conv) const {
    if (input.size() != 3 || input[0] != conv.in) {
      return Wants(absl::StrCat("[", conv.in, ", H, W]"), input);
    }
    HS_ASSIGN_OR_RETURN(Shape output, Window(conv.kernel, conv.stride, conv.padding));
    output[0] = conv.out;
    // Before it is counted: the limit on a row's numbers is checked by the caller after each layer.
    if (ElementCount(output).value_or(spec_limits::kRowElements + 1) <= spec_limits::kRowElements) {
      macs += *ElementCount(output) * conv.in * conv.kernel * conv.kernel;
    }
    return output;
  }

  absl::StatusOr<Shape> operator()(const BatchNormLayer& norm) const {
    return Channels(norm.channels);
  }

  absl::StatusOr<Shape> operator()(const GroupNormLayer& norm) const {
    return Channels(norm.channels);
  }

  absl::StatusOr<Shape> operator()(const ActivationLayer&) const { return input; }

  absl::StatusOr<Shape> operator()(const PreluLayer& prelu) const {
    return prelu.slopes == 1 ? absl::StatusOr<Shape>(input) : Channels(prelu.slopes);
  }

  absl::StatusOr<Shape> operator()(const AvgPoolLayer& pool) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    return Window(pool.kernel, pool.stride, pool.padding);
  }

  absl::StatusOr<Shape> operator()(const MeanPoolLayer&) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    return Shape{input[0]};
  }

  absl::StatusOr<Shape> operator()(const FlattenLayer&) const {
    return Shape{ElementCount(input).value_or(-1)};
  }

  absl::StatusOr<Shape> operator()(const DepthCatLayer&) const {
    Shape output = input;
    output[0] += 1;
    return output;
  }

  absl::StatusOr<Shape> operator()(const AugmentLayer& augment) const;

 private:
  absl::StatusOr<Shape> Channels(int64_t channels) const {
    if (input[0] != channels) return Wants(absl::StrCat("[", channels, ", ...]"), input);
    return input;
  }

  absl::StatusOr<Shape> Window(int64_t kernel, int64_t stride, int64_t padding) const {
    Shape output = input;
    for (const size_t dim : {1, 2}) {
      const int64_t room = input[dim] + 2 * padding - kernel;
      if (room < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "kernel ", kernel, " does not fit into ", ShapeText(input), " with padding ", padding));
      }
      output[dim] = room / stride + 1;
    }
    return output;
  }
};

absl::StatusOr<Shape> TraceLayers(const LayerList& layers, const Shape& input, int64_t& macs) {
  if (input.empty()) return absl::InvalidArgumentError("a row has at least one dimension");
  Shape shape = input;
  for (size_t i = 0; i < layers.size(); ++i) {
    absl::StatusOr<Shape> output = std::visit(Trace{shape, macs}, layers[i].kind);
    if (!output.ok()) return Annotate(output.status(), absl::StrCat("[", i, "]"));
    const std::optional<int64_t> elements = ElementCount(*output);
    if (!elements || *elements < 1 || *elements > spec_limits::kRowElements) {
      return absl::InvalidArgumentError(absl::StrCat("[", i, "]: a row of ", ShapeText(*output),
                                                     " has more numbers than the limit of ",
                                                     spec_limits::kRowElements));
    }
    shape = *std::move(output);
  }
  return shape;
}

absl::StatusOr<Shape> Trace::operator()(const AugmentLayer& augment) const {
  absl::StatusOr<Shape> inner = TraceLayers(augment.layers, input, macs);
  if (!inner.ok()) return Annotate(inner.status(), "augment.layers");
  Shape output = *std::move(inner);
  if (output.size() != input.size() ||
      !std::equal(output.begin() + 1, output.end(), input.begin() + 1)) {
    return absl::InvalidArgumentError(absl::StrCat("augment.layers give ", ShapeText(output),
                                                   ", which cannot stand beside their input ",
                                                   ShapeText(input)));
  }
  output[0] += input[0];
  return output;
}

// The tensors of one layer, by the last part of their names.
struct Tensors {
  std::map<std::string, Shape> operator()(const LinearLayer& linear) const {
    return WithBias({linear.out, linear.in}, linear.bias);
  }
  std::map<std::string, Shape> operator()(const Conv2dLayer& conv) const {
    return WithBias({conv.out, conv.in, conv.kernel, conv.kernel}, conv.bias);
  }
  std::map<std::string, Shape> operator()(const BatchNormLayer& norm) const {
    const Shape shape{norm.channels};
    return {{"weight", shape}, {"bias", shape}, {"running_mean", shape}, {"running_var", shape}};
  }
  std::map<std::string, Shape> operator()(const GroupNormLayer& norm) const {
    return {{"weight", {norm.channels}}, {"bias", {norm.channels}}};
  }
  std::map<std::string, Shape> operator()(const PreluLayer& prelu) const {
    return {{"weight", {prelu.slopes}}};
  }
  std::map<std::string, Shape> operator()(const AugmentLayer& augment) const {
    return ExpectedTensors(augment.layers, "layers");
  }
  template <class WithoutTensors>
  std::map<std::string, Shape> operator()(const WithoutTensors&) const {
    return {};
  }

 private:
  static std::map<std::string, Shape> WithBias(const Shape& weight, const bool bias) {
    std::map<std::string, Shape> tensors{{"weight", weight}};
    if (bias) tensors["bias"] = {weight[0]};
    return tensors;
  }
};

}  // namespace

absl::StatusOr<Shape> OutputShape(const LayerList& layers, const Shape& input) {
  int64_t macs = 0;
  return TraceLayers(layers, input, macs);
}

absl::StatusOr<int64_t> CountMacs(const LayerList& layers, const Shape& input) {
  int64_t macs = 0;
  HS_RETURN_IF_ERROR(TraceLayers(layers, input, macs).status());
  return macs;
}

std::map<std::string, Shape> ExpectedTensors(const LayerList& layers, std::string_view prefix) {
  std::map<std::string, Shape> tensors;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (auto& [name, shape] : std::visit(Tensors{}, layers[i].kind)) {
      tensors[absl::StrCat(std::string(prefix), ".", i, ".", name)] = shape;
    }
  }
  return tensors;
}

}  // namespace hyperserve
