// Percentiles of measurements.
#pragma once

#include <vector>

namespace hyperserve {

// The smallest of the values such that at least the fraction `p` (0 to 1) of them is at most it
// (nearest rank); NaN where there are no values. Pure.
double Percentile(std::vector<double> values, double p);

}  // namespace hyperserve
