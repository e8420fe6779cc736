#include "core/engine/readable/row_costs.h"

#include "core/model/net/model.h"

namespace hyperserve {

RowCosts::RowCosts(const BatchSpec& spec) {
  const Model& model = *spec.model;
  if (spec.entry == Entry::kInput) maps_macs_ += model.stem_macs();
  if (spec.want_outputs) maps_macs_ += model.head_macs();
  // Each tangent is one more pass of the nets.
  const int64_t passes = spec.log_density == LogDensity::kNone ? 1 : 1 + model.state_elements();
  field_macs_ = passes * model.field_macs();
  correction_macs_ = spec.correction == nullptr ? 0 : passes * spec.correction->macs();
}

void RowCosts::Append(int64_t nfe, int64_t correction_evaluations, BatchResult& result) const {
  result.nfe.push_back(static_cast<int32_t>(nfe));
  result.correction_evaluations.push_back(static_cast<int32_t>(correction_evaluations));
  result.macs.push_back(maps_macs_ + nfe * field_macs_ + correction_evaluations * correction_macs_);
}

}  // namespace hyperserve
