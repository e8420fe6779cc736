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
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"

namespace hyperserve {

// ReadRows and FitRows (core/io/rows.h), whose failures become FileErrors here.
absl::StatusOr<RowsFile> ReadInput(const std::string& path, const std::string& tensor_name);
// Both keep the code of the failure.
absl::StatusOr<HostTensor> FitInput(RowsFile file, const Shape& row_shape, int64_t limit);

// Converts rows to the dtype that the tier takes: F64 for double, else F32; U8 stays.
HostTensor ForTier(const HostTensor& rows, Tier tier);

// The share of `labels` that equal the first labels of an IDX file. A FileError where it holds
// fewer.
absl::StatusOr<double> Accuracy(const std::string& labels_path, std::span<const int64_t> labels);

// A stretch of the rows of a command, which one request sends.
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
