#include "core/model/spec/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/one_line.h"

namespace hyperserve {
namespace {

using MessageType = google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The type that a path of the parser leads to: "stem[0].augment"; null: it leads nowhere.
const MessageType* TypeAt(const MessageType* type, absl::string_view path) {
  for (const absl::string_view part : absl::StrSplit(path, '.', absl::SkipEmpty())) {
    const std::string name(part.substr(0, part.find('[')));
    const FieldDescriptor* field = type->FindFieldByName(name);
    if (field == nullptr) field = type->FindFieldByCamelcaseName(name);
    if (field == nullptr || field->message_type() == nullptr) return nullptr;
    type = field->message_type();
  }
  return type;
}

// What a field of this type of the parser takes.
absl::string_view KindOf(absl::string_view type) {
  if (absl::StrContains(type, "INT")) return "a whole number below 2^31";
  if (absl::StrContains(type, "DOUBLE")) return "a number";
  if (absl::StrContains(type, "BOOL")) return "true or false";
  return "a text in quotes";
}

// The parser says "(field[0].linear.in): invalid value 2.5 for type TYPE_INT32".
std::string WrongValue(absl::string_view message) {
  constexpr absl::string_view kInvalid = "): invalid value ", kType = " for type ";
  const size_t value = message.find(kInvalid), type = message.rfind(kType);
  if (message.empty() || message[0] != '(' || value == message.npos || type == message.npos ||
      type < value + kInvalid.size()) {
    return "";
  }
  const absl::string_view path = message.substr(1, value - 1);
  const absl::string_view found =
      message.substr(value + kInvalid.size(), type - value - kInvalid.size());
  if (absl::StartsWith(found, "oneof field")) {
    return absl::StrCat(path, ": two kinds stand here, and there can be one");
  }
  return absl::StrCat(path, ": ", found.substr(0, 80), " stands where ",
                      KindOf(message.substr(type + kType.size())), " belongs");
}

// Answers an unknown name with the known ones: the parser says "(stem[0]) selu: Cannot find
// field." Other messages stay as they are where they are words.
std::string InOurWords(const std::string& message, const MessageType* type) {
  if (absl::StrContains(message, "Root element must be a message")) {
    return "the file holds one JSON object: {...}";
  }
  if (const std::string wrong = WrongValue(message); !wrong.empty()) return wrong;
  constexpr absl::string_view kUnknown = ": Cannot find field.";
  absl::string_view rest = message;
  if (!absl::ConsumeSuffix(&rest, kUnknown)) return message;
  absl::string_view path;
  if (absl::StartsWith(rest, "(") && rest.find(") ") != rest.npos) {
    path = rest.substr(1, rest.find(") ") - 1);
    rest.remove_prefix(path.size() + 3);
  }
  const MessageType* at = TypeAt(type, path);
  if (at == nullptr) return message;
  std::vector<std::string> known;
  for (int i = 0; i < at->field_count(); ++i) known.push_back(std::string(at->field(i)->name()));
  return absl::StrCat(path.empty() ? "" : absl::StrCat(path, ": "), "unknown name '",
                      rest.substr(0, 80),
                      "'; known: ", known.empty() ? "none" : absl::StrJoin(known, ", "));
}

}  // namespace

absl::Status ParseProtoJson(std::string_view json, google::protobuf::Message* message) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(InOurWords(
      OneLine({status.message().data(), status.message().size()}), message->GetDescriptor()));
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
