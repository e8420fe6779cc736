#include "client/frame/json_writer.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/shortest_text.h"

namespace hyperserve {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

JsonWriter& JsonWriter::Raw(std::string_view text) {
  if (comma_) text_ += ',';
  text_ += text;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::BeginObject() {
  Raw("{");
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  comma_ = false;
  return Raw("}");
}

JsonWriter& JsonWriter::BeginArray() {
  Raw("[");
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  comma_ = false;
  return Raw("]");
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Raw(Quoted(name));
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) { return Raw(Quoted(text)); }
JsonWriter& JsonWriter::Value(bool truth) { return Raw(truth ? "true" : "false"); }

JsonWriter& JsonWriter::Value(double number) {
  return Raw(std::isfinite(number) ? ShortestText(number) : "null");
}

JsonWriter& JsonWriter::Value(float number) {
  return Raw(std::isfinite(number) ? ShortestText(number) : "null");
}

JsonWriter& JsonWriter::Value(const HostTensor& tensor) {
  size_t element = 0;
  TensorLevel(tensor, 0, element);
  return *this;
}

void JsonWriter::TensorLevel(const HostTensor& tensor, size_t dimension, size_t& element) {
  if (dimension < tensor.shape.size()) {
    BeginArray();
    for (int64_t i = 0; i < tensor.shape[dimension]; ++i) {
      TensorLevel(tensor, dimension + 1, element);
    }
    EndArray();
    return;
  }
  const size_t at = element++;
  if (tensor.dtype == Dtype::kI64) {
    Value(tensor.as<int64_t>()[at]);
    return;
  }
  const double number = ElementAsDouble(tensor.view(), static_cast<int64_t>(at));
  if (tensor.dtype == Dtype::kF64) {
    Value(number);
  } else {
    Value(static_cast<float>(number));  // what fits it, in the fewest digits
  }
}

std::string JsonWriter::Take() {
  comma_ = false;
  return std::exchange(text_, "");
}

}  // namespace hyperserve
