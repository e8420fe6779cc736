// Rows of a request, checked once; rows of an answer. Pure.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/calls/ask.h"

namespace hyperserve {

// What a batch of rows must look like.
struct RowsRule {
  std::string_view field;  // what error texts call it: "inputs"
  Shape row_shape;         // of one row
  int64_t rows_max = 0;
  Tier tier = Tier::kExact;  // F64 only in double
  bool takes_u8 = false;     // images, divided by 255
  bool unit_range = false;   // floats lie within [0, 1]
};

// A copy of the rows (the message dies before the engine is done with them). kInvalidArgument names
// what was found, what was wanted and, of numbers, the row.
absl::StatusOr<HostTensor> TakeRows(const AskedRows& asked, const RowsRule& rule);

// Doubles as F32 or F64. Precondition: as many as the shape says.
HostTensor TensorOf(std::span<const double> numbers, const Shape& shape, Dtype dtype);

// NaN in all numbers of the rows that did not converge. Precondition: F32 or F64, or an empty
// tensor.
void BlankFailedRows(std::span<const RowStatus> status, HostTensor& tensor);

}  // namespace hyperserve
