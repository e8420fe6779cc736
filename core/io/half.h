// Numbers of two bytes. F16 is IEEE 754 binary16 (largest 65504, steps of 2^-24 near zero), BF16 is
// the upper half of a float. Pure; any thread.
#pragma once

#include <cstdint>

namespace hyperserve {

// The nearest F16, ties to even, as IEEE 754 rounds: 65520 and above are infinite, a NaN stays one.
uint16_t HalfFromDouble(double number);
// Exact.
float FloatFromHalf(uint16_t bits);
// Also of infinities, NaN and subnormal numbers.
float FloatFromBfloat16(uint16_t bits);

}  // namespace hyperserve
