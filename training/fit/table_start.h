// The table of a learned solver that least squares give, where a fit may start. The other starts
// are classical plans: see TableTensors. Runs on the calling thread.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "training/fit/truth.h"

namespace hyperserve {

inline constexpr double kNormMin = 1e-12;  // the smallest |z*| that an error is divided by

// Where the nodes of a start lie.
struct NodeGrid {
  const char* name;
  NodeShare share;
};
inline constexpr NodeGrid kEqualNodes = {"equal depths", EqualShare};

// Grids to start from beside equal depths, denser near the end of the solve: where the field reads
// the depth, it may change fastest there, as that of a flow does near data that lie on lines. None
// for images, whose states on further grids would not fit into memory.
std::vector<NodeGrid> FurtherGrids(const Net& field, const Shape& state_shape);

// True states of some rows: x_0, and states[i] = z*(DepthAt(span, i + 1, m, grid.share)) for i < m,
// with m = max(n, 1).
struct GridTruth {
  std::array<double, 2> span = {0.0, 1.0};
  NodeGrid grid = kEqualNodes;
  at::Tensor start;
  std::vector<at::Tensor> states;
  at::Tensor condition = {};  // of each row; undefined where the model has none
};

// A table with the nodes of the truth's grid. For i = 0 .. n-1 in order, x_{i+1} is the
// combination of x_0, k_0 .. k_i and 1 that is nearest to the true state in least squares, every
// row weighted by 1 / |z*|; k_{i+1} is evaluated at that x_{i+1}, so the fit sees its own errors.
// Directions that the rows do not determine keep the smallest coefficients. The tensors are those
// of ExpectedCoefficients, float32, on the device of the rows. Uses no autograd, and of images only
// as many rows as memory allows.
TensorMap LeastSquaresTensors(const TensorSpace& space, const TableSpec& spec,
                              const GridTruth& truth);

}  // namespace hyperserve
