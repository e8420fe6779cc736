// Protobuf JSON as the files of a repository use it: snake_case, unknown fields refused. Internal
// to core/model: protos are seen by its .cc files only.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace google::protobuf {
class Message;
}

namespace hyperserve {

// kInvalidArgument with the parser's words, on one line, where `json` is not the message.
absl::Status ParseProtoJson(std::string_view json, google::protobuf::Message* message);

// The format of every JSON file of a repository: the number that its field `format` holds.
inline constexpr int kFileFormat = 1;

// A whole file. kInvalidArgument as above, and where it is of another format.
template <class Message>
absl::StatusOr<Message> ParseFileJson(std::string_view json) {
  Message message;
  if (absl::Status status = ParseProtoJson(json, &message); !status.ok()) return status;
  if (message.format() == kFileFormat) return message;
  return absl::InvalidArgumentError(
      absl::StrCat("format: ", message.format(), " is not the known format ", kFileFormat));
}

// The binary form with the entries of maps in the order of their keys: the same message has the
// same bytes in every process.
std::string CanonicalBytes(const google::protobuf::Message& message);

// Pretty, ends with a newline. Fields at their default are left out; the same message prints the
// same bytes.
std::string PrintProtoJson(const google::protobuf::Message& message);

}  // namespace hyperserve
