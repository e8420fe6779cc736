// The JSON header of a safetensors file: exactly the JSON that the format allows, read strictly.
// Private to core/io.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

struct SafetensorsEntry {
  Dtype dtype = Dtype::kF32;
  Shape shape = {};
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> tensors = {};
  std::map<std::string, std::string> metadata = {};
};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"k": "v"}},
// with blanks around tokens. kInvalidArgument says what was expected and at which byte. Each
// entry's numbers are checked to be integers from 0 to 2^63 - 1, and nothing more.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json);

// Tensors in the order of the map, metadata first.
std::string PrintSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace hyperserve
