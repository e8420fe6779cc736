// IDX files, the format of MNIST and Fashion-MNIST: two zero bytes, the element type, the number of
// dimensions, big-endian sizes, then the elements. Unsigned bytes and floats are read. Pure; any
// thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

// A tensor of the file's shape, [images, rows, columns] or [labels], and of its elements: U8, F32
// or F64. kInvalidArgument says what is damaged, or which element type is not read.
absl::StatusOr<HostTensor> ParseIdx(std::string_view bytes);

}  // namespace hyperserve
