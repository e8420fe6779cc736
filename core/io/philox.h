// Counter-based random numbers: Philox4x32-10 and standard normals made from it. The noise of a
// sample is a pure function of (seed, row, dimension), so a request that is split into several
// gives the same samples. Pure; any thread.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace hyperserve {

using PhiloxWords = std::array<uint32_t, 4>;

// Ten rounds of the Philox bijection. The words have the same bits on every device.
PhiloxWords Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Standard normals for rows [first_row, first_row + rows), row-major. Precondition: `out` holds
// rows * dimensions numbers. In the words of Philox,
//
//   key = (seed low, seed high)
//   counter = (row low, row high, dimension / 4, stream)      stream 0: noise
//   u_j = ((w_j >> 9) + 1/2) 2^-23                            in (0, 1), exact in float32
//
// and Box-Muller turns (u_0, u_1) and (u_2, u_3) into the normals of four dimensions. Computed in
// double; after a cast to float32, devices agree to 1e-6.
void PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                   std::span<double> out);

// Random signs for the same rows, from stream 1 + probe: +1 where bit 31 of the dimension's word is
// 0, else -1; the words of block d / 4 are those of dimensions d to d + 3. The same bits on every
// device. Precondition: `out` holds rows * dimensions numbers, and probe >= 0.
void PhiloxSigns(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions, int64_t probe,
                 std::span<float> out);

}  // namespace hyperserve
