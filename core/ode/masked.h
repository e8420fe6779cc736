// Moving some rows of a state and leaving the others, bit for bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/ode/space.h"

namespace hyperserve {

inline bool All(const std::vector<bool>& mask) {
  return std::find(mask.begin(), mask.end(), false) == mask.end();
}

inline bool Any(const std::vector<bool>& mask) {
  return std::find(mask.begin(), mask.end(), true) != mask.end();
}

// `yes` where the mask is set, else `no`.
template <StateSpace Space>
typename Space::State Choose(const Space& space, const std::vector<bool>& mask,
                             typename Space::State yes, const typename Space::State& no) {
  return All(mask) ? std::move(yes) : space.Where(mask, yes, no);
}

// Writes row i of `source` over row indices[i] of `target`, where mask[i].
template <StateSpace Space>
void Scatter(const Space& space, const typename Space::State& source,
             const std::vector<int64_t>& indices, const std::vector<bool>& mask,
             typename Space::State& target) {
  const size_t rows = static_cast<size_t>(space.Rows(target));
  if (indices.size() == rows && All(mask)) {  // rows only ever leave, so these are in order
    target = source;
    return;
  }
  std::vector<int64_t> from(rows, 0);
  std::vector<bool> written(rows, false);
  for (size_t i = 0; i < indices.size(); ++i) {
    from[static_cast<size_t>(indices[i])] = static_cast<int64_t>(i);
    written[static_cast<size_t>(indices[i])] = mask[i];
  }
  target = space.Where(written, space.Gather(source, from), target);
}

}  // namespace hyperserve
