// Protobuf JSON as the files of a repository use it: snake_case, unknown fields refused. Private to
// core/model, where only .cc files see protos. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace google::protobuf {
class Message;
}

namespace hyperserve {

// kInvalidArgument with the message of the parser, on one line, where `json` does not fit the type
// of `message`.
absl::Status ParseProtoJson(std::string_view json, google::protobuf::Message* message);

// The value of the field `format` in every JSON file of a repository.
inline constexpr int kFileFormat = 1;

// Parses a whole file. kInvalidArgument as ParseProtoJson, and for another format.
template <class Message>
absl::StatusOr<Message> ParseFileJson(std::string_view json) {
  Message message;
  if (absl::Status status = ParseProtoJson(json, &message); !status.ok()) return status;
  if (message.format() == kFileFormat) return message;
  return absl::InvalidArgumentError(
      absl::StrCat("format: ", message.format(), " is not the known format ", kFileFormat));
}

// The binary form with map entries in the order of their keys: equal messages have equal bytes in
// every process.
std::string CanonicalBytes(const google::protobuf::Message& message);

// Indented JSON that ends with a newline. Leaves out fields at their default. Equal messages print
// equal bytes.
std::string PrintProtoJson(const google::protobuf::Message& message);

}  // namespace hyperserve
