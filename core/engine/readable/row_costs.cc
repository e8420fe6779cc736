#include "core/engine/readable/row_costs.h"

#include "core/model/net/model.h"
#include "core/plan/method.h"

namespace hyperserve {

RowCosts::RowCosts(const BatchSpec& spec) {
  const Model& model = *spec.model;
  if (spec.entry == Entry::kInput) maps_macs_ += model.stem_macs();
  if (spec.want_outputs) maps_macs_ += model.head_macs();
  if (spec.log_density != LogDensity::kNone) {
    passes_ += spec.probes > 0 ? spec.probes : model.state_elements();
  }
  if (spec.derivative == Derivative::kJvp) {
    passes_ += 1;
    maps_macs_ *= 2;
  }
  field_macs_ = model.field_macs();
  if (spec.method.method == Method::kLearned) {
    learned_ = spec.correction;
    with_distance_ = spec.want_distance;
  } else if (spec.correction != nullptr) {
    correction_macs_ = spec.correction->macs();
  }
}

void RowCosts::Append(int64_t nfe, int64_t correction_evaluations, BatchResult& result) const {
  result.nfe.push_back(static_cast<int32_t>(nfe));
  result.correction_evaluations.push_back(static_cast<int32_t>(correction_evaluations));
  result.macs.push_back(maps_macs_ + SolveMacs(nfe, correction_evaluations));
}

int64_t RowCosts::SolveMacs(int64_t nfe, int64_t correction_evaluations) const {
  // A row of a learned solver has as many evaluations as its table.
  int64_t corrections = correction_evaluations * correction_macs_;
  if (learned_ != nullptr) {
    const Hypersolver::TableFacts& table = *learned_->table(nfe);
    corrections = table.macs + (with_distance_ ? table.distance_macs : 0);
  }
  return passes_ * (nfe * field_macs_ + corrections);
}

}  // namespace hyperserve
