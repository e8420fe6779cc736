// model.json: protobuf JSON to checked plain data, and back.
#include <cmath>

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/layer_proto.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"
#include "core/model/spec/spec_reading.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

absl::StatusOr<std::vector<double>> ReadPerChannel(
    const google::protobuf::RepeatedField<double>& values, int64_t channels,
    const std::string& path) {
  if (!values.empty() && values.size() != channels) {
    return Invalid(path, ": wants one value for each of ", channels, " channels, found ",
                   values.size());
  }
  for (const double value : values) {
    if (!std::isfinite(value)) return Invalid(path, ": ", value, " is not finite");
  }
  return std::vector<double>(values.begin(), values.end());
}

absl::StatusOr<InputSpec> ReadInput(const v1::ModelSpec::Input& proto) {
  InputSpec input{.shape = {proto.shape().begin(), proto.shape().end()},
                  .unit_range = proto.unit_range()};
  if (input.shape.size() != 1 && input.shape.size() != 3) {
    return Invalid("input.shape: wants [features] or [channels, height, width], found ",
                   ShapeText(input.shape));
  }
  for (const int64_t size : input.shape) {
    HS_RETURN_IF_ERROR(CheckRange("input.shape", size, 1, layer_limits::kChannels));
  }
  HS_RETURN_IF_ERROR(CheckRange("input.shape: elements of a row",
                                ElementCount(input.shape).value_or(INT64_MAX), 1,
                                layer_limits::kRowElements));
  HS_ASSIGN_OR_RETURN(input.mean, ReadPerChannel(proto.mean(), input.shape[0], "input.mean"));
  HS_ASSIGN_OR_RETURN(input.deviation,
                      ReadPerChannel(proto.deviation(), input.shape[0], "input.deviation"));
  for (const double value : input.deviation) {
    HS_RETURN_IF_ERROR(CheckPositive("input.deviation", value));
  }
  return input;
}

absl::StatusOr<Shape> ReadCondition(const v1::ModelSpec& proto) {
  const Shape shape = {proto.condition().shape().begin(), proto.condition().shape().end()};
  if (!proto.has_condition()) return shape;
  if (shape.size() != 1) {
    return Invalid("condition.shape: wants [features], found ", ShapeText(shape));
  }
  HS_RETURN_IF_ERROR(CheckRange("condition.shape", shape[0], 1, layer_limits::kChannels));
  return shape;
}

absl::StatusOr<std::vector<double>> ReadNoCondition(const v1::ModelSpec& proto) {
  const auto& none = proto.condition().none();
  if (!none.empty() && none.size() != proto.condition().shape(0)) {
    return Invalid("condition.none: ", none.size(), " numbers, condition.shape is [",
                   proto.condition().shape(0), "]");
  }
  for (const double value : none) {
    if (!std::isfinite(static_cast<float>(value))) {
      return Invalid("condition.none: ", value, " is not finite in float32");
    }
  }
  return std::vector<double>(none.begin(), none.end());
}

absl::StatusOr<ModelKind> ReadKind(const std::string& name) {
  constexpr ModelKind kKinds[] = {ModelKind::kClassifier, ModelKind::kFlow, ModelKind::kRegressor,
                                  ModelKind::kTrajectory};
  for (const ModelKind kind : kKinds) {
    if (name == ModelKindName(kind)) return kind;
  }
  return Invalid("kind: '", name, "' is none of classifier, flow, regressor, trajectory");
}

// Trajectories have depths, and other kinds have none.
absl::StatusOr<std::vector<double>> ReadSaveAt(const v1::ModelSpec& proto, const ModelSpec& spec) {
  const std::vector<double> depths(proto.save_at().begin(), proto.save_at().end());
  if (spec.kind != ModelKind::kTrajectory) {
    if (depths.empty()) return depths;
    return Invalid("save_at: it is that of a trajectory; requests to a ",
                   Absl(ModelKindName(spec.kind)), " bring their own");
  }
  HS_RETURN_IF_ERROR(CheckRange("save_at: depths", static_cast<int64_t>(depths.size()), 1,
                                spec_limits::kSavedDepths));
  for (size_t i = 0; i < depths.size(); ++i) {
    const bool inside = depths[i] >= spec.span[0] && depths[i] <= spec.span[1];  // false for NaN
    if (inside && (i == 0 || depths[i] > depths[i - 1])) continue;
    return Invalid("save_at[", i, "]: ", depths[i], "; strictly increasing depths within [",
                   spec.span[0], ", ", spec.span[1], "] wanted");
  }
  return depths;
}

absl::Status CheckFreeOfDepth(const LayerList& layers, const std::string& path) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "].", Absl(LayerName(layers[i])));
    if (ReadsDepth(layers[i])) return Invalid(at, ": there is a depth in field and net only");
    if (ConditionFeatures(layers[i]) > 0) {
      return Invalid(at, ": there is a condition in field and net only");
    }
    for (const InnerList& inner : InnerLists(layers[i])) {
      HS_RETURN_IF_ERROR(CheckFreeOfDepth(inner.layers, absl::StrCat(at, ".", inner.path)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FieldPackageSpec>> ReadFieldPackage(const v1::ModelSpec& proto) {
  if (!proto.has_field_package()) return std::nullopt;
  if (proto.field_size() > 0) {
    return Invalid("field_package: the model has layers in field; one of the two is wanted");
  }
  const double macs = proto.field_package().macs();
  if (!(macs >= 1 && macs <= spec_limits::kDeclaredMacs) || macs != std::floor(macs)) {
    return Invalid("field_package.macs: ", macs, " is no whole number within [1, ",
                   spec_limits::kDeclaredMacs, "]");
  }
  return FieldPackageSpec{.macs = static_cast<int64_t>(macs)};
}

absl::Status CheckField(const ModelSpec& spec, const Shape& state) {
  if (spec.field_package) return absl::OkStatus();  // what it maps is seen when its code runs
  if (spec.field.empty()) {
    return Invalid("field: at least one layer is needed, or a field_package in its place");
  }
  HS_RETURN_IF_ERROR(CheckCondition(spec.field, spec.condition, "field"));
  if (!spec.condition.empty() && !UsesCondition(spec.field)) {
    return Invalid("condition: no layer of field reads it");
  }
  HS_ASSIGN_OR_RETURN(const Shape slope, ListShape(spec.field, state, "field"));
  if (slope == state) return absl::OkStatus();
  return Invalid("field: maps a state of ", ShapeText(state), " to ", ShapeText(slope),
                 "; it must give the state's own shape");
}

absl::Status CheckModelShapes(const ModelSpec& spec) {
  HS_RETURN_IF_ERROR(CheckFreeOfDepth(spec.stem, "stem"));
  HS_RETURN_IF_ERROR(CheckFreeOfDepth(spec.head, "head"));
  HS_ASSIGN_OR_RETURN(const Shape state, ListShape(spec.stem, spec.input.shape, "stem"));
  HS_RETURN_IF_ERROR(CheckField(spec, state));
  if (!HasOutputs(spec.kind)) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(const Shape output, ListShape(spec.head, state, "head"));
  if (output.size() != 1) {
    return Invalid("head: must give one list of numbers a row, gives ", ShapeText(output));
  }
  if (!spec.labels.empty() && static_cast<int64_t>(spec.labels.size()) != output[0]) {
    return Invalid("labels: ", spec.labels.size(), " labels for ", output[0], " outputs");
  }
  return absl::OkStatus();
}

absl::Status CheckKind(const ModelSpec& spec) {
  const bool forward = spec.direction == Direction::kForward;
  if (spec.kind != ModelKind::kFlow) {
    const absl::string_view name = Absl(ModelKindName(spec.kind));
    if (!forward) return Invalid("direction: a ", name, "'s is forward or absent");
    if (HasOutputs(spec.kind) && spec.head.empty()) return Invalid("head: a ", name, " needs one");
    if (HasOutputs(spec.kind)) return absl::OkStatus();
    if (!spec.head.empty()) return Invalid("head: a ", name, " has none: its answer are states");
    if (!spec.labels.empty()) return Invalid("labels: a ", name, " has none");
    return absl::OkStatus();
  }
  if (forward) return Invalid("direction: a flow's is data_to_noise or noise_to_data");
  if (!spec.stem.empty()) return Invalid("stem: a flow has none");
  if (!spec.head.empty()) return Invalid("head: a flow has none");
  if (!spec.labels.empty()) return Invalid("labels: a flow has none");
  if (!spec.input.mean.empty() || !spec.input.deviation.empty() || spec.input.unit_range) {
    return Invalid("input: a flow's input is its state: no unit_range, mean or deviation");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view json) {
  HS_ASSIGN_OR_RETURN(const v1::ModelSpec proto, ParseJson<v1::ModelSpec>(json));
  ModelSpec spec;
  HS_ASSIGN_OR_RETURN(spec.kind, ReadKind(proto.kind()));
  if (!proto.direction().empty()) {
    HS_ASSIGN_OR_RETURN(spec.direction, ReadDirection(proto.direction()));
  }
  HS_ASSIGN_OR_RETURN(spec.span, ReadPair(proto.span(), "span"));
  if (!(spec.span[0] < spec.span[1])) {
    return Invalid("span: [", spec.span[0], ", ", spec.span[1], "] does not grow");
  }
  if (!std::isfinite(spec.span[1] - spec.span[0])) {
    return Invalid("span: [", spec.span[0], ", ", spec.span[1], "] has no finite length");
  }
  HS_ASSIGN_OR_RETURN(spec.save_at, ReadSaveAt(proto, spec));
  HS_ASSIGN_OR_RETURN(spec.input, ReadInput(proto.input()));
  HS_ASSIGN_OR_RETURN(spec.condition, ReadCondition(proto));
  HS_ASSIGN_OR_RETURN(spec.no_condition, ReadNoCondition(proto));
  HS_ASSIGN_OR_RETURN(spec.stem, LayersFromProto(proto, "stem"));
  HS_ASSIGN_OR_RETURN(spec.field, LayersFromProto(proto, "field"));
  HS_ASSIGN_OR_RETURN(spec.head, LayersFromProto(proto, "head"));
  spec.labels = {proto.labels().begin(), proto.labels().end()};
  HS_ASSIGN_OR_RETURN(spec.field_package, ReadFieldPackage(proto));
  HS_RETURN_IF_ERROR(CheckTexts(spec.labels, "labels"));
  HS_RETURN_IF_ERROR(CheckKind(spec));
  HS_RETURN_IF_ERROR(CheckModelShapes(spec));
  return spec;
}

std::string PrintModelSpec(const ModelSpec& spec) {
  v1::ModelSpec proto;
  proto.set_format(kFileFormat);
  proto.set_kind(std::string(ModelKindName(spec.kind)));
  if (spec.direction != Direction::kForward) {
    proto.set_direction(std::string(DirectionName(spec.direction)));
  }
  proto.mutable_span()->Add(spec.span.begin(), spec.span.end());
  v1::ModelSpec::Input& input = *proto.mutable_input();
  input.mutable_shape()->Add(spec.input.shape.begin(), spec.input.shape.end());
  input.set_unit_range(spec.input.unit_range);
  input.mutable_mean()->Add(spec.input.mean.begin(), spec.input.mean.end());
  input.mutable_deviation()->Add(spec.input.deviation.begin(), spec.input.deviation.end());
  for (const int64_t features : spec.condition) {
    proto.mutable_condition()->add_shape(static_cast<int32_t>(features));
  }
  if (!spec.no_condition.empty()) {
    proto.mutable_condition()->mutable_none()->Add(spec.no_condition.begin(),
                                                   spec.no_condition.end());
  }
  LayersToProto(spec.stem, "stem", proto);
  LayersToProto(spec.field, "field", proto);
  LayersToProto(spec.head, "head", proto);
  if (spec.field_package) {
    proto.mutable_field_package()->set_macs(static_cast<double>(spec.field_package->macs));
  }
  for (const std::string& label : spec.labels) proto.add_labels(label);
  proto.mutable_save_at()->Add(spec.save_at.begin(), spec.save_at.end());
  return PrintProtoJson(proto);
}

}  // namespace hyperserve
