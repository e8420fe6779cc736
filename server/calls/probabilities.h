// From logits to what a caller of a classifier asks. In double, whatever the logits' type. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyperserve {

// exp(x_i) / sum_j exp(x_j), shifted by the largest so that nothing overflows. Precondition:
// finite.
std::vector<double> Softmax(std::span<const double> logits);

// Indices of the k largest, largest first; of equal ones the lower index. Precondition: finite, 1
// <= k <= size.
std::vector<int64_t> TopK(std::span<const double> logits, int k);

}  // namespace hyperserve
