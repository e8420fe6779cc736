// The coefficients of a learned table as the kernels read them. Private to core/engine/fused.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/spec/spec.h"

namespace hyperserve {

// Table: kernels::ConvTable or kernels::FlowTable. `tensors` on the CPU, in float32. Every
// coefficient becomes a matrix over the `size` channels or dimensions; without an evaluation there
// are none.
template <class Table>
Table TableNumbers(const Hypersolver::TableFacts& facts, const TensorMap& tensors, int64_t size) {
  Table table{.nodes = facts.nodes, .coefficients = {}, .offset = {}};
  const TableSpec& spec = *facts.spec;
  if (spec.evaluations == 0) return table;
  const std::string prefix = TablePrefix(spec.evaluations);
  const at::Tensor identity = at::eye(size);
  const auto append = [&](const at::Tensor& coefficient) {
    const at::Tensor matrix = spec.coefficients == Coefficients::kMap
                                  ? coefficient.contiguous()
                                  : (identity * coefficient).contiguous();
    const float* begin = matrix.const_data_ptr<float>();
    table.coefficients.insert(table.coefficients.end(), begin, begin + matrix.numel());
  };
  const at::Tensor state = tensors.at(prefix + ".state"), slopes = tensors.at(prefix + ".slopes");
  for (int64_t i = 0, next = 0; i < spec.evaluations; ++i) {
    append(state[i]);
    for (int64_t j = 0; j <= i; ++j) append(slopes[next++]);
  }
  const at::Tensor offset = tensors.at(prefix + ".offset").contiguous();
  const float* begin = offset.const_data_ptr<float>();
  table.offset.assign(begin, begin + offset.numel());
  return table;
}

}  // namespace hyperserve
