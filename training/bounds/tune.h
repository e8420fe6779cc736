// What plans per row could save with the bounds of today, if each plan of a ladder had a threshold
// of its own, chosen for the 99th percentile of all rows. Pure.
#pragma once

#include <vector>

#include "training/bounds/bounded_plan.h"

namespace hyperserve {

struct TunedLadder {
  Ladder ladder;                   // empty: none has fewer MACs than the plan alone
  std::vector<double> thresholds;  // the bounds that end a row, one for each plan
};

// The ladder of two or three plans, and its thresholds, with the fewest MACs on the even rows of
// which at most one of a hundred errs by more than `error`. `alone` is the cheapest plan for all
// rows with that percentile. Precondition: ascending MACs.
TunedLadder Tune(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone, double error,
                 bool reused);

}  // namespace hyperserve
