// What plans per row would save if somebody knew the true error of each row under every plan: how
// far better bounds, or plans whose evaluations are used again, could get. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "training/bounds/bounded_plan.h"

namespace hyperserve {

// Mean MACs of a row such that 99 % of them have at most an error that is asked for.
struct OracleMacs {
  // Each row pays for the cheapest plan that is exact enough, and for no other.
  double free = 0;
  // It pays for all plans of a ladder up to that one, but evaluations of f only once: going on from
  // n to m of them costs m - n, and the readout.
  double reused = 0;
  // As plans per row are served: it pays for all plans of a ladder up to that one.
  double paid = 0;
};

// On every second row, from `first` on. The ladder is the best one of learned plans and `alone`,
// which is the cheapest plan for all rows. One row of a hundred may miss: those that cost most.
// Preconditions: ascending MACs; `alone` is one of the plans, and misses by no more rows.
OracleMacs MacsOfOracles(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone,
                         double error, size_t first);

}  // namespace hyperserve
