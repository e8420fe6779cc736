// Layers between protobuf and plain data; inside the spec parser only.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/model/spec/spec.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {

using LayerProtos = google::protobuf::RepeatedPtrField<v1::Layer>;

// Checks every number against core/model/spec/spec_limits.h. `path` ("field") begins the messages.
absl::StatusOr<LayerList> LayersFromProto(const LayerProtos& protos, const std::string& path);
void LayersToProto(const LayerList& layers, LayerProtos& protos);

// OK where low <= value <= high; else kInvalidArgument: "<path>: <value> is outside [low, high]".
absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high);
// OK where value is finite and > 0.
absl::Status CheckPositive(const std::string& path, double value);

}  // namespace hyperserve
