// Layers between protobuf and plain data; inside the spec parser only.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace google::protobuf {
class Message;
}

namespace hyperserve {

// The layers of proto's field `name`, a list of hyperserve.v1.Layer. kInvalidArgument says where,
// what and its limit: "field[2].conv2d.kernel: 0 is outside [1, 64]".
absl::StatusOr<LayerList> LayersFromProto(const google::protobuf::Message& proto, const char* name);
// Adds them to that field. Fields at their default are left out.
void LayersToProto(const LayerList& layers, const char* name, google::protobuf::Message& proto);

// OK where low <= value <= high; else kInvalidArgument: "<path>: <value> is outside [low, high]".
absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high);
// OK where value is finite and > 0.
absl::Status CheckPositive(const std::string& path, double value);

}  // namespace hyperserve
