#include "core/io/philox.h"

#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

namespace hyperserve {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr uint32_t kNoiseStream = 0;

// In the open interval (0, 1), exact in float32.
double Uniform(uint32_t word) { return (static_cast<double>(word >> 9) + 0.5) * 0x1p-23; }

// (sin(pi x), cos(pi x)). The argument is reduced exactly, so multiples of a quarter turn are
// exact.
std::pair<double, double> SinCosPi(double x) {
  const double quarters = std::nearbyint(2.0 * x);
  const double rest = std::numbers::pi * (x - 0.5 * quarters);
  const double sine = std::sin(rest), cosine = std::cos(rest);
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

// Box-Muller: the normal of the even dimension, then that of the odd one.
std::pair<double, double> NormalPair(uint32_t word0, uint32_t word1) {
  const double radius = std::sqrt(-2.0 * std::log(Uniform(word0)));
  const auto [sine, cosine] = SinCosPi(2.0 * Uniform(word1));
  return {radius * cosine, radius * sine};
}

}  // namespace

PhiloxWords Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

void PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                   std::span<double> out) {
  assert(static_cast<int64_t>(out.size()) == rows * dimensions);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t row = first_row + static_cast<uint64_t>(i);
    const std::span<double> normals =
        out.subspan(static_cast<size_t>(i * dimensions), static_cast<size_t>(dimensions));
    for (int64_t d = 0; d < dimensions; d += 4) {
      const PhiloxWords words =
          Philox4x32({static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
                      static_cast<uint32_t>(d / 4), kNoiseStream},
                     key);
      const auto [n0, n1] = NormalPair(words[0], words[1]);
      const auto [n2, n3] = NormalPair(words[2], words[3]);
      const std::array<double, 4> block = {n0, n1, n2, n3};
      for (int64_t j = 0; j < 4 && d + j < dimensions; ++j) {
        normals[static_cast<size_t>(d + j)] = block[static_cast<size_t>(j)];
      }
    }
  }
}

void PhiloxSigns(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions, int64_t probe,
                 std::span<float> out) {
  assert(static_cast<int64_t>(out.size()) == rows * dimensions);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  auto place = out.begin();
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t row = first_row + static_cast<uint64_t>(i);
    for (int64_t d = 0; d < dimensions; d += 4) {
      const PhiloxWords words = Philox4x32(
          {static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
           static_cast<uint32_t>(d / 4), kNoiseStream + 1 + static_cast<uint32_t>(probe)},
          key);
      for (int64_t j = 0; j < 4 && d + j < dimensions; ++j) {
        *place++ = (words[static_cast<size_t>(j)] >> 31) == 0 ? 1.0f : -1.0f;
      }
    }
  }
}

}  // namespace hyperserve
