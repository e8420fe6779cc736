#include "core/model/proto_json.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

namespace hyperserve {

absl::Status ParseProtoJson(std::string_view json, google::protobuf::Message* message) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::string_view(status.message().data(), status.message().size()));
}

std::string PrintProtoJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Printing fails only for malformed Any messages and invalid UTF-8; our files have neither.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

}  // namespace hyperserve
