// A whole solve by one table for all rows of a bucket, on the device from its start to its end: a
// fixed sequence of operations that reads no memory of the host, so that it can be captured. The
// operations are those of the readable engine (core/ode/solver_table.h over TensorSpace), and so
// are the bits of a row in the bucket. Throws as LibTorch does.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/solve_setup.h"
#include "core/model/net/table.h"
#include "core/ode/solver_table.h"

namespace hyperserve {

// What the solve needs beside rows. Keeps no model alive, but its tensors.
struct TableSolve {
  SolveSetup setup;
  SolverTable<TableCoefficient> table;
  bool of_inputs = false;    // rows are inputs of the model, after preprocessing, else states
  bool has_outputs = false;  // rows have outputs
};

// False for densities, derivatives, guidance, a field.pt2, tier fast, and methods that do not run
// from a table.
bool TableSolveSupports(const BatchSpec& spec);

// For rows of this bucket that ask for this number of steps (ab2) or evaluations (learned).
// Precondition: TableSolveSupports(spec), and the table is there.
TableSolve SetUpTableSolve(const BatchSpec& spec, int64_t steps, int64_t bucket, at::Device device);

// Rows that start together, as ReadRows and ReadConditions return them.
struct TableRows {
  at::Tensor start;
  at::Tensor condition;  // undefined where the model has none
};

struct TableEnds {
  at::Tensor state;    // z(s1); z(s0) where that is not finite
  at::Tensor finite;   // kBool [rows]
  at::Tensor outputs;  // NaN where the state is not finite; undefined where rows have none
  // F64 [2, rows], where the table has a distance readout: the squares of d and of z(s1).
  at::Tensor squares;
};

// Does not wait for the device. Precondition: the rows are those of the bucket.
TableEnds SolveWholeTable(const TableSolve& solve, const TableRows& rows);

// Zeros for all rows of the bucket.
TableRows ZeroTableRows(const BatchSpec& spec, const TableSolve& solve, at::Device device);

}  // namespace hyperserve
