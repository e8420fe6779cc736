// NPY files, as numpy.save writes them. Pure; any thread.
//
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// Versions 1 to 3; either order of bytes and of elements. Floats of 2, 4 and 8 bytes and unsigned
// bytes keep their type, other integers become I64 (an unsigned one of 8 bytes is refused).
// kInvalidArgument says what is damaged, or names the type that is not read.
absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes);

}  // namespace hyperserve
