// IDX files (MNIST, Fashion-MNIST): big-endian magic, dimensions, unsigned bytes. Gzipped files are
// recognised by content.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

// U8 tensor of the file's shape: [images, rows, columns] or [labels].
absl::StatusOr<HostTensor> ReadIdx(const std::string& path);

}  // namespace hyperserve
