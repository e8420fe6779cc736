// What the parsers of model.json and hypersolver.json share. Private to them. Pure.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/layer_proto.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"

namespace hyperserve {

// kInvalidArgument with these parts as its message; they begin with the path of the field.
template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Parses a whole file. kInvalidArgument: it is empty or above kModelJsonBytesMax, or as
// ParseFileJson.
template <class Message>
absl::StatusOr<Message> ParseJson(std::string_view json) {
  HS_RETURN_IF_ERROR(
      CheckRange("bytes of the file", static_cast<int64_t>(json.size()), 1, kModelJsonBytesMax));
  return ParseFileJson<Message>(json);
}

// Two finite numbers; kInvalidArgument names `path`. The caller checks their order.
inline absl::StatusOr<std::array<double, 2>> ReadPair(
    const google::protobuf::RepeatedField<double>& values, const std::string& path) {
  if (values.size() != 2 || !std::isfinite(values[0]) || !std::isfinite(values[1])) {
    return Invalid(path, ": wants two finite numbers, found ", values.size(), " values");
  }
  return std::array<double, 2>{values[0], values[1]};
}

// By DirectionName; kInvalidArgument lists the names. Whether it suits the kind of the model is
// checked by the caller.
inline absl::StatusOr<Direction> ReadDirection(const std::string& name) {
  for (const Direction direction :
       {Direction::kForward, Direction::kDataToNoise, Direction::kNoiseToData}) {
    if (DirectionName(direction) == name) return direction;
  }
  return Invalid("direction: '", name, "' is none of forward, data_to_noise, noise_to_data");
}

// OutputShape with the list's name before the layer's index: "field[2]: ...".
inline absl::StatusOr<Shape> ListShape(const LayerList& layers, const Shape& input,
                                       const std::string& path) {
  absl::StatusOr<Shape> shape = OutputShape(layers, input);
  if (shape.ok()) return shape;
  return absl::Status(shape.status().code(), absl::StrCat(path, shape.status().message()));
}

// kInvalidArgument names `path` where a text is longer than the limit. Texts may be empty.
inline absl::Status CheckTexts(const std::vector<std::string>& texts, const std::string& path) {
  for (const std::string& text : texts) {
    HS_RETURN_IF_ERROR(CheckRange(path + ": bytes of one text", static_cast<int64_t>(text.size()),
                                  0, spec_limits::kTextBytes));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
