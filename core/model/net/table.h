// The table of a learned solver with its tensors, as core/ode/solver_table.h wants it. Every
// operation is differentiable in the tensors. Throws as LibTorch does.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/solver_table.h"

namespace hyperserve {

// One coefficient: a number [], one number for each channel [C], or a map over the channels.
struct TableCoefficient {
  at::Tensor value;                       // undefined for maps
  std::optional<Net> map = std::nullopt;  // one layer, MapLayer
};

// A classical table, whose coefficients are numbers.
SolverTable<TableCoefficient> BindTable(const SolverTable<double>& table);

// Takes the tensors of ExpectedCoefficients(table, state_shape) from the map; they must have those
// shapes. Views of the tensors: bind again after they were changed in place. `nodes` are s_i.
SolverTable<TableCoefficient> BindTable(const TableSpec& table, const Shape& state_shape,
                                        const TensorMap& tensors, std::vector<double> nodes);

// The tensors of a table of numbers, as coefficients of this kind: F64 on the CPU, by the names and
// shapes of ExpectedCoefficients. BindTable of them computes the same solves. A fit starts here.
TensorMap TableTensors(const SolverTable<double>& table, Coefficients kind,
                       const Shape& state_shape);

}  // namespace hyperserve
