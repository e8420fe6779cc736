#include "server/registry/served_model.h"

#include <algorithm>

#include "core/plan/method.h"

namespace hyperserve {

const CorrectionState* ServedModel::Find(const MethodChoice& method) const {
  const auto found =
      std::find_if(corrections.begin(), corrections.end(),
                   [&](const CorrectionState& state) { return state.method == method; });
  return found == corrections.end() ? nullptr : &*found;
}

}  // namespace hyperserve
