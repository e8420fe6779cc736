// Bounds of the errors of single rows, by split conformal prediction: of m calibrated rows with
// ratios error / distance, the k-th smallest ratio with k = ceil(0.95 (m + 1)) bounds the ratio of
// a further row with a probability of at least 0.95, whatever the distribution, as long as that row
// is drawn like the calibrated ones. Nothing is promised for rows of another kind. Pure; any
// thread.
//
// Source: Papadopoulos, Proedrou, Vovk, Gammerman, "Inductive Confidence Machines for Regression",
// 2002; Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, "Distribution-Free Predictive Inference for
// Regression", 2018.
#pragma once

#include <optional>
#include <vector>

#include "core/model/repository/calibration.h"

namespace hyperserve {

inline constexpr double kBoundCoverage = 0.95;

// The bound that these rows give. nullopt: fewer than 19 rows, or more than 5 % of the rows have no
// finite ratio. Precondition: one error and one distance for each row, none below 0. A row whose
// error is 0 has the ratio 0; one whose distance alone is 0 has an infinite ratio.
std::optional<ErrorBound> CalibrateBound(const std::vector<double>& errors,
                                         const std::vector<double>& distances);

// The share of the calibrated rows whose bound is at most `error`, linear between two quantiles.
double ShareWithin(const ErrorBound& bound, double error);

}  // namespace hyperserve
