// Writes JSON text in order. Numbers are the shortest text that reads back the same. NaN and
// infinities, which JSON lacks, become null. Nothing fails. The caller must nest calls correctly:
// Key before each value of an object, and an End for each Begin. One thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>

#include "core/io/tensor.h"

namespace hyperserve {

class JsonWriter {
 public:
  // Each returns the writer, so that calls can follow each other.
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  // Escapes the name as Value escapes text.
  JsonWriter& Key(std::string_view name);

  // Quotes, backslashes and control characters are escaped; other bytes pass, so text that is no
  // UTF-8 stays so.
  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(const std::string& text) { return Value(std::string_view(text)); }
  // The shortest text that reads back as the same double; a float prints as that of a float.
  JsonWriter& Value(double number);
  JsonWriter& Value(float number);
  JsonWriter& Value(bool truth);
  JsonWriter& Null() { return Raw("null"); }
  template <std::integral Integer>
  JsonWriter& Value(Integer number) {
    return Raw(std::to_string(number));
  }
  // Nested arrays in the tensor's shape.
  JsonWriter& Value(const HostTensor& tensor);
  template <std::ranges::input_range Range>
  requires(!std::convertible_to<Range, std::string_view>) JsonWriter& Value(const Range& values) {
    BeginArray();
    for (const auto& value : values) Value(value);
    return EndArray();
  }

  template <class T>
  JsonWriter& Field(std::string_view name, const T& value) {
    return Key(name).Value(value);
  }

  // Returns the text and leaves the writer empty.
  std::string Take();

 private:
  JsonWriter& Raw(std::string_view text);
  void TensorLevel(const HostTensor& tensor, size_t dimension, size_t& element);

  std::string text_;
  bool comma_ = false;  // the next value or key follows another one
};

}  // namespace hyperserve
