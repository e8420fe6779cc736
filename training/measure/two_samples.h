// Compares sets of points, each [rows, D] in float32 or float64 on the CPU. Pure.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace hyperserve {

// The distance has the unit of the points.
struct EnergyTest {
  double distance = 0;  // 2 E|x - y| - E|x - x'| - E|y - y'|: 0 for equal densities
  double p = 1;         // share of the divisions of all points into two sets that are as far apart
};
// The permutation test of the energy distance (Szekely and Rizzo, 2013): small p means that x and y
// come from different densities. The divisions follow from `seed`; the given one counts among them,
// so p is at least 1 / (permutations + 1). Precondition: permutations >= 1 and no set is empty.
EnergyTest TestEnergy(const at::Tensor& x, const at::Tensor& y, int permutations, uint64_t seed);

// The entropy, in nats, of the density that the points come from, by the distances of nearest
// neighbours (Kozachenko and Leonenko, 1987). Its standard error is about
// sqrt((var(log p) + 1.6) / rows). Precondition: two rows or more, and no two equal ones.
double EntropyByNeighbours(const at::Tensor& points);

}  // namespace hyperserve
