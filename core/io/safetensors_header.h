// The JSON header of a safetensors file, read strictly: no JSON beyond what the format allows.
// Private to safetensors.cc and its tests.
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

// What the header says, not yet compared with the file.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> tensors = {};
  std::map<std::string, std::string> metadata = {};
};

// Reads {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
// "__metadata__": {"k": "v"}}, with blanks around tokens. kInvalidArgument says which token was
// expected at which byte; a name that stands twice is refused. Numbers are integers from 0 to
// 2^63 - 1; whether they fit the file is checked by the caller.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json);

// The inverse: metadata first, then the tensors in the order of the map.
std::string PrintSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace hyperserve
