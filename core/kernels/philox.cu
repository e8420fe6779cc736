#include "core/kernels/philox.cuh"
#include "core/kernels/philox.h"

namespace hyperserve::kernels {
namespace {

constexpr int kThreads = 256;

// One thread makes the numbers of four dimensions of one row, or fewer at the row's end.
template <class Number>
__global__ void FillNormals(uint2 key, uint64_t first_row, int64_t rows, int64_t dimensions,
                            Number* out) {
  const int64_t blocks = (dimensions + 3) / 4;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= rows * blocks) return;
  const uint64_t row = first_row + static_cast<uint64_t>(index / blocks);
  const int64_t block = index % blocks;
  const uint4 words = PhiloxWords(row, static_cast<uint32_t>(block), key);
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
  FillNormals<<<grid, kThreads, 0, stream>>>(PhiloxKey(seed), first_row, rows, dimensions, out);
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
