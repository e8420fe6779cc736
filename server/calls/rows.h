// Checks the rows of a request, once, and makes the rows of an answer. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/calls/ask.h"

namespace hyperserve {

// What the rows of a request must look like.
struct RowsRule {
  std::string_view field;    // its name in error messages: "inputs"
  Shape row_shape;           // of one row
  int64_t rows_max = 0;      // request_rows_max
  Tier tier = Tier::kExact;  // F64 is taken in tier double only
  bool takes_u8 = false;     // images, which the engine divides by 255
  bool unit_range = false;   // floats must lie within [0, 1]
};

// A copy of the rows: the message may be gone before the engine reads them. F16 becomes F32.
// kInvalidArgument: the dtype, the shape, the number of bytes or a number is wrong; it says what
// was found and what is wanted, and in which row.
absl::StatusOr<HostTensor> TakeRows(const AskedRows& asked, const RowsRule& rule);

// What the segment of a job points to.
struct RowsOfJob {
  HostTensor data, condition, guidance = {}, vector = {}, condition_vector = {};
};

// The number of rows that came, unchecked; 1 where it cannot be told.
int64_t RowsAsked(const AskedRows& asked);

// The numbers as a tensor of F32 or F64. Precondition: as many numbers as the shape says.
HostTensor TensorOf(std::span<const double> numbers, const Shape& shape, Dtype dtype);

// Row `row` of a tensor of F32 or F64 with `width` numbers a row.
std::vector<double> RowAsDoubles(const HostTensor& tensor, int64_t row, int64_t width);

// A head that overflows gives a row no answer although its solve converged: the row counts as
// failed. `outputs` [rows, outputs]. Rows that failed already keep their status. Precondition:
// outputs of F32 or F64, at least one row.
void MarkOverflownHeads(const HostTensor& outputs, std::vector<RowStatus>& status);

// Writes NaN into the rows that did not converge. Precondition: the tensor is F32 or F64 with one
// row for each status, or empty.
void BlankFailedRows(std::span<const RowStatus> status, HostTensor& tensor);

}  // namespace hyperserve
