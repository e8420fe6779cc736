// Logits to probabilities and to the best classes, in double. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyperserve {

// exp(x_i) / sum_j exp(x_j). Subtracts the largest logit first, so that nothing overflows.
// Precondition: at least one logit, all finite.
std::vector<double> Softmax(std::span<const double> logits);

// The indices of the k largest logits, the largest first; the lower index first where two are
// equal. Precondition: all finite, 1 <= k <= size.
std::vector<int64_t> TopK(std::span<const double> logits, int k);

}  // namespace hyperserve
