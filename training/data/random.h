// The trainer's random numbers. They come from Philox, so that they are the same on every device
// and a run follows from its seed. The streams share no number with each other, nor with the wire's
// noise (core/io/philox.h), whose last counter word is below 2^31.
#pragma once

#include <array>
#include <cstdint>

namespace hyperserve {

// One stream for each, so that more draws for one purpose change no other.
enum class RandomPurpose : uint32_t {
  kData = 0,     // rows of a density: a function of (seed, row)
  kWeights = 1,  // initial weights
  kBatches = 2,  // which rows make a batch, which K an iteration draws
};

// Uniform in (0, 1), exact in float32: ((word >> 9) + 1/2) 2^-23.
double UnitUniform(uint32_t word);

// Two independent standard normals from two uniforms in (0, 1) (Box-Muller).
std::array<double, 2> NormalPair(double u, double v);

// A sequence of random numbers. A copy continues from the same place. Not thread-safe.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose) : seed_(seed), purpose_(purpose) {}

  // Each block of Philox gives four words; none is skipped.
  uint32_t Word();
  double Uniform() { return UnitUniform(Word()); }
  // A number in [0, count). Precondition: 0 < count < 2^31.
  int64_t Below(int64_t count);

  // Words that were drawn so far; Seek goes to where so many were.
  uint64_t drawn() const { return 4 * block_ + used_ - 4; }
  // Takes the same time wherever it goes.
  void Seek(uint64_t drawn);

 private:
  uint64_t seed_;
  RandomPurpose purpose_;
  uint64_t block_ = 0;
  int used_ = 4;  // words of the current block that were used
  std::array<uint32_t, 4> words_{};
};

// The eight words of one row of the data: a pure function of seed and row.
std::array<uint32_t, 8> RowWords(uint64_t seed, uint64_t row);

}  // namespace hyperserve
