#include "core/engine/readable/row_costs.h"

#include "core/model/net/model.h"
#include "core/plan/method.h"

namespace hyperserve {

RowCosts::RowCosts(const BatchSpec& spec) {
  const Model& model = *spec.model;
  if (spec.entry == Entry::kInput) maps_macs_ += model.stem_macs();
  if (spec.want_outputs) maps_macs_ += model.head_macs();
  if (spec.log_density != LogDensity::kNone) passes_ += model.state_elements();
  field_macs_ = model.field_macs();
  if (spec.method.method == Method::kLearned) {
    learned_ = spec.correction;
  } else if (spec.correction != nullptr) {
    correction_macs_ = spec.correction->macs();
  }
}

void RowCosts::Append(int64_t nfe, int64_t correction_evaluations, BatchResult& result) const {
  result.nfe.push_back(static_cast<int32_t>(nfe));
  result.correction_evaluations.push_back(static_cast<int32_t>(correction_evaluations));
  // A row of a learned solver has as many evaluations as its table.
  const int64_t corrections =
      learned_ != nullptr ? learned_->table(nfe)->macs : correction_evaluations * correction_macs_;
  result.macs.push_back(maps_macs_ + passes_ * (nfe * field_macs_ + corrections));
}

}  // namespace hyperserve
