#include "core/kernels/philox.h"

namespace hyperserve::kernels {
namespace {

constexpr int kThreads = 256;
constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr uint32_t kNoiseStream = 0;

// Philox4x32, ten rounds.
__device__ uint4 PhiloxWords(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(kMultiplier0, counter.x), low0 = kMultiplier0 * counter.x;
    const uint32_t high1 = __umulhi(kMultiplier1, counter.z), low1 = kMultiplier1 * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += kWeyl0;
    key.y += kWeyl1;
  }
  return counter;
}

// In the open interval (0, 1), exact in float32.
__device__ double Uniform(uint32_t word) {
  return (static_cast<double>(word >> 9) + 0.5) * (1.0 / 8388608.0);
}

// Box-Muller: the normal of the even dimension, then that of the odd one.
__device__ double2 NormalPair(uint32_t word0, uint32_t word1) {
  const double radius = sqrt(-2.0 * log(Uniform(word0)));
  double sine, cosine;
  sincospi(2.0 * Uniform(word1), &sine, &cosine);
  return make_double2(radius * cosine, radius * sine);
}

// One thread makes the numbers of four dimensions of one row, or fewer at the row's end.
template <class Number>
__global__ void FillNormals(uint2 key, uint64_t first_row, int64_t rows, int64_t dimensions,
                            Number* out) {
  const int64_t blocks = (dimensions + 3) / 4;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= rows * blocks) return;
  const uint64_t row = first_row + static_cast<uint64_t>(index / blocks);
  const int64_t block = index % blocks;
  const uint4 words =
      PhiloxWords(make_uint4(static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
                             static_cast<uint32_t>(block), kNoiseStream),
                  key);
  const double2 first = NormalPair(words.x, words.y), second = NormalPair(words.z, words.w);
  const double normals[4] = {first.x, first.y, second.x, second.y};
  Number* target = out + index / blocks * dimensions + 4 * block;
  for (int64_t j = 0; j < 4 && 4 * block + j < dimensions; ++j) {
    target[j] = static_cast<Number>(normals[j]);
  }
}

template <class Number>
cudaError_t Launch(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions, Number* out,
                   cudaStream_t stream) {
  const int64_t threads = rows * ((dimensions + 3) / 4);
  if (threads == 0) return cudaSuccess;
  const unsigned grid = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  const uint2 key = make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  FillNormals<<<grid, kThreads, 0, stream>>>(key, first_row, rows, dimensions, out);
  return cudaGetLastError();
}

}  // namespace

cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          float* out, cudaStream_t stream) {
  return Launch(seed, first_row, rows, dimensions, out, stream);
}

cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          double* out, cudaStream_t stream) {
  return Launch(seed, first_row, rows, dimensions, out, stream);
}

}  // namespace hyperserve::kernels
