// The number of rows that the nets see. Rows are padded so that the bits of one do not depend on
// the others. On the CPU the matrix product takes other kernels for few rows, and vectorised
// functions round differently in a tail that does not fill a vector. On CUDA the bits depend on the
// size of the batch only.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"

namespace hyperserve {

// Plain data, made once for a run (SetUpSolve).
struct RowPadding {
  int64_t multiple = 1;  // rows are padded to a multiple of this ...
  int64_t at_least = 1;  // ... and to no fewer than this
  int64_t Rows(int64_t rows) const {
    return (std::max(rows, at_least) + multiple - 1) / multiple * multiple;
  }
};

// The multiple that these layers need on the CPU for rows of this shape: a power of two.
// Precondition: the layers accept rows of this shape.
int64_t RowMultiple(const LayerList& layers, const Shape& input);

// The bucket of a batch on CUDA: `rows` rounded up to a power of two.
int64_t Bucket(int64_t rows);

// PadRows appends rows of zeros to values and tangents until there are `rows`; KeepRows keeps the
// first `rows`.
Dual PadRows(const Dual& x, int64_t rows);
// Both return what they were given where the number of rows is right already. Undefined tangents
// stay undefined.
Dual KeepRows(const Dual& y, int64_t rows);

}  // namespace hyperserve
