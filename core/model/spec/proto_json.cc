#include "core/model/spec/proto_json.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>
#include <string>

#include "core/base/one_line.h"

namespace hyperserve {
absl::Status ParseProtoJson(std::string_view json, google::protobuf::Message* message) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(OneLine({status.message().data(), status.message().size()}));
}

std::string CanonicalBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string PrintProtoJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  const std::unique_ptr<google::protobuf::util::TypeResolver> resolver(
      google::protobuf::util::NewTypeResolverForDescriptorPool(
          "proto", message.GetDescriptor()->file()->pool()));
  std::string json;
  // Printing fails only for malformed Any messages and invalid UTF-8; our files have neither.
  (void)google::protobuf::util::BinaryToJsonString(resolver.get(),
                                                   "proto/" + message.GetDescriptor()->full_name(),
                                                   CanonicalBytes(message), &json, options);
  return json;
}

}  // namespace hyperserve
