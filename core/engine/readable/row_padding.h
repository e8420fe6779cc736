// How many rows the nets see, so that a row's bits do not depend on its company. On the CPU the
// matrix product picks other kernels for few rows, and vectorised functions round differently in
// the tail that does not fill a vector; on CUDA only the size of the batch matters.
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

struct RowPadding {
  int64_t multiple = 1;  // rows are padded to a multiple of this ...
  int64_t at_least = 1;  // ... and to no fewer than this
  int64_t Rows(int64_t rows) const {
    return (std::max(rows, at_least) + multiple - 1) / multiple * multiple;
  }
};

// What these layers need on the CPU, for rows of this shape.
int64_t RowMultiple(const LayerList& layers, const Shape& input);

// `rows` raised to a power of two: the bucket of a batch on CUDA.
int64_t Bucket(int64_t rows);

// x with rows of zeros added to its batch (and to its tangents'); y without them.
Dual PadRows(const Dual& x, int64_t rows);
Dual KeepRows(const Dual& y, int64_t rows);

}  // namespace hyperserve
