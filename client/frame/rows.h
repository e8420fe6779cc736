// Rows of numbers: from files, in the slices of many requests, and to files.
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

// Reads [rows, ...]: safetensors (the tensor `tensor_name`; empty: "x", or the only one), CSV (F64
// [rows, columns]; one header line is skipped), else IDX, gzipped or not (U8).
absl::StatusOr<HostTensor> ReadRows(const std::string& path, const std::string& tensor_name);

// Comma-separated numbers, one row a line, all of the same length, as F64.
absl::StatusOr<HostTensor> ParseCsv(std::string_view text);

// The same rows with `row_shape` after the first dimension, cut to `limit` rows (0: all). An error
// names both shapes where the elements do not match.
absl::StatusOr<HostTensor> FitRows(HostTensor rows, const Shape& row_shape, int64_t limit);

// U8 stays as it is; numbers become what the tier takes: F64 for double, F32 else.
absl::StatusOr<HostTensor> ForTier(const HostTensor& rows, Tier tier);

// Any number of our dtypes but F16 as a double.
double ElementAsDouble(const HostTensor& tensor, int64_t index);

// Share of the labels that equal those of an IDX file, from its first on.
absl::StatusOr<double> Accuracy(const std::string& labels_path, std::span<const int64_t> labels);

struct Slice {
  int64_t index = 0, begin = 0, end = 0;
  int64_t rows() const { return end - begin; }
};

// Cuts [0, rows) into slices of at most `batch` and calls `work` for each, up to `concurrency` at a
// time on threads of its own. The first failure ends it and is returned. `work` must be thread-safe
// for different slices.
absl::Status ForEachSlice(int64_t rows, int64_t batch, int concurrency,
                          const std::function<absl::Status(const Slice&)>& work);

// Lines of comma-separated numbers under `header`; rows longer than one dimension are flattened.
// `extra`, where it has elements, is one more column.
std::string PrintCsv(const std::vector<std::string>& header, const HostTensor& rows,
                     const HostTensor& extra);

// "0.1,0.5" to numbers; a usage error names `flag`.
absl::StatusOr<std::vector<double>> ParseNumbers(std::string_view flag, std::string_view text);

}  // namespace hyperserve
