// Plans on rows whose errors are known, and ladders of them: plans per row, of which a row takes
// one after the other until one of them is good enough. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "core/model/repository/calibration.h"

namespace hyperserve {

// A plan of a learned solver that has a bound, or a classical plan, on some rows.
struct BoundedPlan {
  PlanCalibration calibration;
  std::vector<double> errors, bounds;  // of each row; classical plans have no bounds
  double macs = 0;                     // of a row, with its distance
  // Those of them that evaluate f, which a larger table could use again; 0: classical.
  double evaluation_macs = 0;

  bool learned() const { return !bounds.empty(); }
};

// By ascending MACs. All but the last are learned.
using Ladder = std::vector<const BoundedPlan*>;

// The plans of which ladders are tried: `alone`, which is one of the plans, and the learned ones of
// at most so many MACs. Of more than kRungsMost of these so many, evenly spread: a solver may have
// 65, and the ladders of all would take years. Precondition: ascending MACs; so is the result.
inline constexpr size_t kRungsMost = 10;
Ladder RungsOf(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone,
               double macs_most = std::numeric_limits<double>::infinity());

// How a row pays for a ladder.
struct Payment {
  // Evaluations of f only once: going on from n to m of them costs m - n, and the readout. Today's
  // tables evaluate f at other points each, so none can do so.
  bool reused = false;
  bool distances = false;  // which the last plan needs not
};

// The MACs that each plan of the ladder adds to what a row has paid that comes to it.
std::vector<double> MacsAdded(const Ladder& ladder, const Payment& payment);

// The nearest rank: this share of the values is at most the result. Precondition: not empty.
double Quantile(std::vector<double> values, double share);

// What plans come to on every second row.
struct Outcome {
  double p99 = 0;   // 99 % of the rows have at most this error
  double macs = 0;  // of a row, the mean
};

// Of a ladder whose plans end the rows with at most these bounds, from row `first` on; the last one
// ends all. As many thresholds as plans; the last is not looked at.
Outcome OutcomeOf(const Ladder& ladder, const std::vector<double>& thresholds,
                  const Payment& payment, size_t first);

}  // namespace hyperserve
