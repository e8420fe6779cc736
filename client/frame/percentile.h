// Percentiles of what was measured.
#pragma once

#include <vector>

namespace hyperserve {

// The smallest value that at least the fraction `p` (0 to 1) of the values do not exceed; NaN of
// none.
double Percentile(std::vector<double> values, double p);

}  // namespace hyperserve
