// Converts layers between protobuf and plain data. Used by the parser and printer of specs only.
// Pure; any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace google::protobuf {
class Message;
}

namespace hyperserve {

// Reads the field `name` of proto, a list of hyperserve.v1.Layer. kInvalidArgument names the place,
// the value and its limit: "field[2].conv2d.kernel: 0 is outside [1, 64]". Shapes are not checked
// (OutputShape does that).
absl::StatusOr<LayerList> LayersFromProto(const google::protobuf::Message& proto, const char* name);
// Appends the layers to that field. Leaves out fields that hold their default.
void LayersToProto(const LayerList& layers, const char* name, google::protobuf::Message& proto);

// kInvalidArgument "<path>: <value> is outside [low, high]" unless low <= value <= high.
absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high);
// kInvalidArgument unless value is finite and above 0.
absl::Status CheckPositive(const std::string& path, double value);

}  // namespace hyperserve
