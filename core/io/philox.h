// Philox4x32-10 (Salmon et al., SC 2011), and the normals of the wire's promise (DESIGN.md section
// 5): noise that is a pure function of (seed, row, dimension), so that a request that was split
// gives the same samples.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace hyperserve {

using PhiloxWords = std::array<uint32_t, 4>;

// Ten rounds. key = (seed low, seed high); the words are the same bits on every device.
PhiloxWords Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Standard normals of rows [first_row, first_row + rows), `dimensions` each, row-major, stream 0
// (noise): counter = (row low, row high, block of four dimensions, stream), u = ((w >> 9) + 1/2)
// 2^-23, Box-Muller on (w0, w1) and (w2, w3). Computed in double; exact to 1e-6 in float32 across
// devices.
void PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                   std::span<double> out);

}  // namespace hyperserve
