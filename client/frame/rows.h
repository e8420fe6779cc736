// Rows of numbers: reading them from files, cutting them into requests, printing them. Errors in a
// file are FileErrors (failure.h), those in an option are usage errors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"

namespace hyperserve {

// Reads [rows, ...] with at least one row. A path that ends in .safetensors: the tensor
// `tensor_name`; if it is empty, the only tensor, or "x". One that ends in .csv: as ParseCsv. Any
// other: IDX (U8), gzipped or not. Failures name the path.
absl::StatusOr<HostTensor> ReadRows(const std::string& path, const std::string& tensor_name);

// Comma-separated numbers, one row in each line, as F64 [rows, columns]. Skips a header in the
// first line and empty lines. kInvalidArgument names a line that is not numbers or has another
// length.
absl::StatusOr<HostTensor> ParseCsv(std::string_view text);

// The first `limit` rows (0: all) of the file `path` as [rows, row_shape...]. Dimensions of one
// element may be left out or added. A line of a CSV file has no shape: its numbers are taken in the
// model's order. Any other shape is a FileError that names both, also where the number of elements
// fits: the numbers would stand in another order. Precondition: at least one row.
absl::StatusOr<HostTensor> FitRows(HostTensor rows, const std::string& path, const Shape& row_shape,
                                   int64_t limit);

// Converts rows to the dtype that the tier takes: F64 for double, else F32; U8 stays. A FileError
// for F16.
absl::StatusOr<HostTensor> ForTier(const HostTensor& rows, Tier tier);

// One element as a double. Precondition: not F16.
double ElementAsDouble(const HostTensor& tensor, int64_t index);

// The share of `labels` that equal the first labels of an IDX file. A FileError where it holds
// fewer.
absl::StatusOr<double> Accuracy(const std::string& labels_path, std::span<const int64_t> labels);

struct Slice {
  int64_t index = 0, begin = 0, end = 0;  // the index-th slice: rows [begin, end)
  int64_t rows() const { return end - begin; }
};

// Cuts [0, rows) into slices of at most `batch` rows and calls `work` for each, on the calling
// thread and on concurrency - 1 more. Returns when all calls have returned. After a failure no new
// slice begins, and the first failure is returned. `work` must be thread-safe for different slices.
absl::Status ForEachSlice(int64_t rows, int64_t batch, int concurrency,
                          const std::function<absl::Status(const Slice&)>& work);

// CSV: the header, then one line for each row, flattened. `extra` is one more column, [rows],
// unless it is empty.
std::string PrintCsv(const std::vector<std::string>& header, const HostTensor& rows,
                     const HostTensor& extra);

// Reads "0.1,0.5"; an empty text holds no numbers. A usage error names `flag`.
absl::StatusOr<std::vector<double>> ParseNumbers(std::string_view flag, std::string_view text);

}  // namespace hyperserve
