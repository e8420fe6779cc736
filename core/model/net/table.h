// The table of a learned solver with its tensors, as core/ode/solver_table.h wants it. Every
// operation is differentiable in the tensors. Throws as LibTorch does.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

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

// The tables of one learned solver, bound at their first use on a device in a dtype and kept for
// the life of this object: a solve of few rows would spend a tenth of its time on binding.
// Thread-safe.
class BoundTables {
 public:
  using Table = SolverTable<TableCoefficient>;

  // Borrows the weights. They hold the tensors of ExpectedCoefficients for every table asked for.
  BoundTables(const NetWeights* weights, Shape state_shape);

  // The table of `spec`. `nodes` are s_i, the same at every call.
  std::shared_ptr<const Table> Get(const TableSpec& spec, const std::vector<double>& nodes,
                                   at::Device device, at::ScalarType dtype) const;

 private:
  const NetWeights* const weights_;
  const Shape state_shape_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. Key: evaluations, device as text, dtype.
  mutable std::map<std::tuple<int, std::string, at::ScalarType>, std::shared_ptr<const Table>>
      bound_;
};

// The tensors of a table of numbers, as coefficients of this kind: F64 on the CPU, by the names and
// shapes of ExpectedCoefficients. BindTable of them computes the same solves. A fit starts here.
TensorMap TableTensors(const SolverTable<double>& table, Coefficients kind,
                       const Shape& state_shape);

}  // namespace hyperserve
