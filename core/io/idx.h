// IDX files, the format of MNIST and Fashion-MNIST: two zero bytes, the element type, the number of
// dimensions, big-endian sizes, then the elements. Only unsigned bytes are read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

// A U8 tensor of the file's shape: [images, rows, columns] or [labels]. Gzipped files are
// recognised by their content. Files of more than 1 GiB, compressed or not, are refused. Fails as
// ReadFile does; kInvalidArgument names the file and what is damaged. Any thread.
absl::StatusOr<HostTensor> ReadIdx(const std::string& path);

}  // namespace hyperserve
