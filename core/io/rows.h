// Files of rows, as the client and the trainer take them. Any thread; they block on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

struct RowsFile {
  std::string name;   // for messages: the path, or "standard input"
  HostTensor rows;    // [rows, ...], at least one row
  bool flat = false;  // text: a line has numbers and no shape
};

// Reads the file at `path`, or standard input where it is "-". Its first bytes say what it is: NPY,
// safetensors, IDX (each gzipped or not), else text as in ParseCsv. Of a safetensors file the
// tensor `tensor_name` is taken; where that is empty, the only tensor, or "x". A last column that
// its header calls log_density, as `sample` writes it, is left out. At most 4 GiB, unpacked.
// Standard input is read once and kept, so it may be asked for again.
//
// Failures name the file. kNotFound: there is none. kInvalidArgument: it is damaged, holds no rows
// or no such tensor, or is something else: a zip, a pickle, a pointer of Git LFS.
absl::StatusOr<RowsFile> ReadRows(const std::string& path, const std::string& tensor_name);

// Another tensor of the same safetensors file, or of standard input, as rows. kNotFound: the file
// or the tensor is missing, and the message lists what is there. kInvalidArgument: it is no
// safetensors file.
absl::StatusOr<RowsFile> ReadTensorBeside(const std::string& path, const std::string& name);

// The first `limit` rows (0: all) as [rows, row_shape...]. Dimensions of one element may be left
// out or added. The numbers of a line of text are taken in the model's order. Any other shape is
// kInvalidArgument that names both, also where the number of elements fits: the numbers would stand
// in another order.
absl::StatusOr<HostTensor> FitRows(RowsFile file, const Shape& row_shape, int64_t limit);

}  // namespace hyperserve
