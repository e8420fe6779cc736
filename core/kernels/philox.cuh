// Philox4x32-10 and Box-Muller for kernels: the twin of core/io/philox.h, which says what the
// numbers are.
#pragma once

#include <cstdint>

namespace hyperserve::kernels {

inline constexpr uint32_t kNoiseStream = 0;

// Four words of (row, block of four dimensions) under a key: ten rounds.
__device__ inline uint4 PhiloxWords(uint64_t row, uint32_t block, uint2 key) {
  uint4 counter =
      make_uint4(static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), block, kNoiseStream);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

__host__ __device__ inline uint2 PhiloxKey(uint64_t seed) {
  return make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// In the open interval (0, 1), exact in float32.
__device__ inline double PhiloxUniform(uint32_t word) {
  return (static_cast<double>(word >> 9) + 0.5) * (1.0 / 8388608.0);
}

// Box-Muller in double: the even dimension's normal, then the odd one's. Differs from the host's by
// rounding alone.
__device__ inline double2 NormalPair(uint32_t word0, uint32_t word1) {
  const double radius = sqrt(-2.0 * log(PhiloxUniform(word0)));
  double sine, cosine;
  sincospi(2.0 * PhiloxUniform(word1), &sine, &cosine);
  return make_double2(radius * cosine, radius * sine);
}

// The same to about 1e-9, for results in float: a quarter of the instructions. Constant memory,
// since a double costs two instructions where it is an immediate operand.
__constant__ constexpr double kLogSeries[] = {2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0};
__constant__ constexpr double kSineSeries[] = {1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0};
__constant__ constexpr double kCosineSeries[] = {-1.0 / 3628800, 1.0 / 40320, -1.0 / 720,
                                                 1.0 / 24,       -1.0 / 2,    1.0};

template <int kTerms>
__device__ __forceinline__ double Series(const double (&terms)[kTerms], double x) {
  double sum = terms[0];
#pragma unroll
  for (int i = 1; i < kTerms; ++i) sum = fma(sum, x, terms[i]);
  return sum;
}

// An integer in [0, 2^31), exactly.
__device__ __forceinline__ double ExactDouble(int value) {
  return __hiloint2double(0x43300000, value) - 4503599627370496.0;
}

// ln(n / 2^24) for n in [1, 2^24).
__device__ __forceinline__ double LogOfUniform(int n) {
  const double value = ExactDouble(n);
  // value = 2^exponent m with m in [sqrt(1/2), sqrt(2)), to a thousandth.
  const int shifted = __double2hiint(value) - 0x3FE6A000;
  const int exponent = shifted >> 20;
  const double m =
      __hiloint2double(__double2hiint(value) - (exponent << 20), __double2loint(value));
  double inverse;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(m + 1.0));
  inverse = fma(inverse, fma(-inverse, m + 1.0, 1.0), inverse);
  const double s = (m - 1.0) * inverse;
  constexpr double kLn2 = 0.6931471805599453;
  return fma(s, Series(kLogSeries, s * s), (exponent - 24) * kLn2);
}

// Sine and cosine of 2 pi n / 2^24.
__device__ __forceinline__ double2 SineCosineOfTurn(int n) {
  const int quarters = (n + (1 << 21)) >> 22;
  const double x = (ExactDouble(n - (quarters << 22) + (1 << 22)) - 4194304.0) *
                   (1.5707963267948966 / 4194304.0);
  const double sine = x * Series(kSineSeries, x * x), cosine = Series(kCosineSeries, x * x);
  const double a = quarters % 2 == 0 ? sine : cosine, b = quarters % 2 == 0 ? cosine : sine;
  return make_double2(quarters / 2 % 2 == 0 ? a : -a, (quarters + 1) / 2 % 2 == 0 ? b : -b);
}

__device__ __forceinline__ float2 FloatNormalPair(uint32_t word0, uint32_t word1) {
  const auto odd = [](uint32_t word) { return static_cast<int>(word >> 9 << 1 | 1u); };
  const double square = -2.0 * LogOfUniform(odd(word0));
  double inverse;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(square));
  double radius = square * inverse;
  radius = fma(0.5 * inverse, fma(-radius, radius, square), radius);
  const double2 turn = SineCosineOfTurn(odd(word1));
  return make_float2(static_cast<float>(radius * turn.y), static_cast<float>(radius * turn.x));
}

}  // namespace hyperserve::kernels
