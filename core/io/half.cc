#include "core/io/half.h"

#include <bit>
#include <cmath>

namespace hyperserve {
namespace {

constexpr int kImplicitBit = 1024;  // of a normal number
constexpr int kInfinity = 0x7C00, kNan = 0x7E00, kSign = 0x8000;

// The bits of a size that is not negative.
int SizeBits(double size) {
  if (std::isnan(size)) return kNan;
  if (size >= 65520) return kInfinity;
  // A multiple of 2^-24. 1024 of them are the smallest normal number, whose bits follow.
  if (size < 0x1p-14) return static_cast<int>(std::nearbyint(size * 0x1p24));
  int exponent = 0;
  std::frexp(size, &exponent);  // size lies within [2^(exponent - 1), 2^exponent)
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  // A mantissa that was rounded up to 2048 carries into the exponent.
  return (exponent + 14) * kImplicitBit + mantissa - kImplicitBit;
}

}  // namespace

uint16_t HalfFromDouble(double number) {
  const int sign = std::signbit(number) ? kSign : 0;
  return static_cast<uint16_t>(sign | SizeBits(std::abs(number)));
}

float FloatFromHalf(uint16_t bits) {
  const float sign = (bits & kSign) != 0 ? -1.0F : 1.0F;
  const int exponent = bits >> 10 & 31, mantissa = bits & (kImplicitBit - 1);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-24F;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(static_cast<float>(kImplicitBit + mantissa), exponent - 25);
}

float FloatFromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace hyperserve
