#include "core/plan/row_status.h"

namespace hyperserve {

std::string_view RowStatusName(RowStatus status) {
  switch (status) {
    case RowStatus::kConverged:
      return "converged";
    case RowStatus::kStepLimit:
      return "step_limit";
    case RowStatus::kStepUnderflow:
      return "step_underflow";
    case RowStatus::kNonFinite:
      return "non_finite";
  }
  return "";
}

}  // namespace hyperserve
