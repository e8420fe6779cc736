#include "training/data/random.h"

#include <cmath>
#include <numbers>

#include "core/io/philox.h"

namespace hyperserve {
namespace {

std::array<uint32_t, 4> Block(uint64_t seed, uint64_t index, uint32_t block,
                              RandomPurpose purpose) {
  const uint32_t stream = 0x80000000u | static_cast<uint32_t>(purpose);
  return Philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block, stream},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace

double UnitUniform(uint32_t word) { return ((word >> 9) + 0.5) * 0x1p-23; }

std::array<double, 2> NormalPair(double u, double v) {
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

uint32_t RandomStream::Word() {
  if (used_ == 4) {
    words_ = Block(seed_, block_++, 0, purpose_);
    used_ = 0;
  }
  return words_[used_++];
}

void RandomStream::Seek(uint64_t drawn) {
  block_ = drawn / 4;
  used_ = 4;
  if (drawn % 4 == 0) return;
  Word();  // the first of its block
  used_ = static_cast<int>(drawn % 4);
}

int64_t RandomStream::Below(int64_t count) {
  // The bias of the multiplication is count / 2^32, far too small to matter.
  return static_cast<int64_t>((static_cast<uint64_t>(Word()) * static_cast<uint64_t>(count)) >> 32);
}

std::array<uint32_t, 8> RowWords(uint64_t seed, uint64_t row) {
  std::array<uint32_t, 8> words;
  for (uint32_t block = 0; block < 2; ++block) {
    const auto four = Block(seed, row, block, RandomPurpose::kData);
    for (int i = 0; i < 4; ++i) words[4 * block + i] = four[i];
  }
  return words;
}

}  // namespace hyperserve
