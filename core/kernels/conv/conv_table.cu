// The kernel of learned tables, in push form: after each slope k_i, every later state x_j gets
// B_ji k_i, and the readout's first layer its part.
#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_layers.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {
namespace {

// Vector j is x_{j+1}, with what is known of its sum; vector n that of the readout's first layer.
class ConvTableSolver {
 public:
  __device__ ConvTableSolver(const ConvLaunch& launch, const ConvLaunch& half)
      : launch_(launch), layers_(launch), half_(half, layers_), n_(launch.layout.evaluations) {}

  __device__ __forceinline__ void Run() {
    layers_.Prepare();
    if (launch_.layout.readout) half_.Prepare();
    layers_.ForRows(MapsOf(-1), [&](int64_t row) {
      Solve(row);
      if (!half_.planes().Fits()) launch_.rows.unfit[row] = kRowUnfit;
    });
  }

 private:
  // The maps of x_0 (-1), of a slope, or of x_n (n).
  __device__ __forceinline__ int MapsOf(int source) const {
    return launch_.layout.field_layers + 1 + source;
  }

  __device__ __forceinline__ void Solve(int64_t row) {
    z0_ = layers_.planes().Row(launch_.rows.z0, row);
    z1_ = layers_.planes().Row(launch_.rows.z1, row);
    half_.planes().StartRow();
    layers_.Fill(kBefore, [&](int tile, StatePairs& pairs) {
      StateSums z;
      layers_.planes().Read(z0_, tile, z);
      PackState(z, pairs);
    });
    const int sources = launch_.layout.readout ? n_ + 1 : n_;
#pragma unroll 1
    for (int source = -1; source < sources; ++source) {
      if (source >= 0 && source < n_) Evaluate(source);
      Map(source);
    }
    if (launch_.layout.readout) AddReadout();
  }

  __device__ __forceinline__ void Evaluate(int slope) {
    const float depth = layers_.Numbers(launch_.layout.table)[slope];
    const int last = launch_.layout.field_layers - 1;
#pragma unroll 1
    for (int layer = 0; layer < last; ++layer) layers_.RunHidden(layer, layer + 1, depth);
    layers_.RunLast(
        last, MapsOf(slope), depth, kBefore, [](int, StateSums&) {},
        [](int, StateSums& sums, StateSums&, StatePairs& pairs) { PackState(sums, pairs); });
  }

  __device__ __forceinline__ int AfterMaps(int source) const {
    if (source + 1 < n_) return 0;
    if (!launch_.layout.readout) return MapsOf(-1);
    return MapsOf(source + 1);
  }

  // x_{j+1} = a_j x_0 + c_j for all j, what is on the diagonal of a_j in fp32; x_{j+1} += B_ji k_i
  // for j >= i, which leaves x_{i+1} in the planes. x_n goes to the readout only.
  __device__ __forceinline__ void Map(int source) {
    const int first = max(source, 0);
    const bool is_slope = source >= 0 && source < n_;
    StateSums state;
    layers_.RunMaps(
        MapsOf(source), AfterMaps(source),
        is_slope ? MapsEnd::kWritesPlanes : MapsEnd::kKeepsPlanes,
        [&](int map, int tile, StateSums& x) {
          if (source >= 0) return ConvPlanes::Load(layers_.Vector(first + map), tile, x);
          if (map == 0) layers_.planes().Read(z0_, tile, state);
          map < n_ ? Begin(map, state, x) : SetAll(Biases(0), x);
        },
        [&](int map, int tile, StateSums& x, StatePairs& pairs) {
          if (source == n_) {
            PackSilu(x, pairs);
            half_.planes().WriteHalf<kConvChannelsMax>(layers_.planes(), tile, pairs);
            return;
          }
          if (map > 0 || !is_slope) {
            return ConvPlanes::Save(layers_.Vector(first + map), tile, x);
          }
          PackState(x, pairs);
          if (source + 1 == n_) layers_.planes().Store(z1_, tile, x);
        });
    if (source == n_) half_.planes().AwaitWrites(kConvChannelsMax, kBefore);
  }

  // x = diagonal of a_j * z + c_j.
  __device__ __forceinline__ void Begin(int j, const StateSums& z, StateSums& x) const {
    const float* diagonal =
        layers_.Numbers(launch_.layout.table) + kConvTableFirst + 2 * j * kConvChannelsMax;
#pragma unroll
    for (int i = 0; i < kConvChannelsMax / 8; ++i) {
      const float2 a = PairOf(diagonal, i), c = PairOf(diagonal + kConvChannelsMax, i);
      x.v[i][0] = fmaf(a.x, z.v[i][0], c.x);
      x.v[i][1] = fmaf(a.y, z.v[i][1], c.y);
      x.v[i][2] = fmaf(a.x, z.v[i][2], c.x);
      x.v[i][3] = fmaf(a.y, z.v[i][3], c.y);
    }
  }

  // Those of a readout: of its first layer, then of the four parts of its last.
  __device__ __forceinline__ const float* Biases(int place) const {
    return layers_.Numbers(launch_.layout.table) + kConvTableFirst +
           (2 * n_ + place) * kConvChannelsMax;
  }

  // A number for each channel.
  static __device__ __forceinline__ void SetAll(const float* numbers, StateSums& x) {
#pragma unroll
    for (int i = 0; i < kConvChannelsMax / 8; ++i) {
      const float2 pair = PairOf(numbers, i);
      x.v[i][0] = x.v[i][2] = pair.x;
      x.v[i][1] = x.v[i][3] = pair.y;
    }
  }

  // z1 += g, from its first layer's values in the planes of half the resolution.
  __device__ __forceinline__ void AddReadout() {
    half_.GoOn(layers_);
    const int up = launch_.layout.layers_count - 1;
#pragma unroll 1
    for (int layer = MapsOf(n_) + 1; layer < up; ++layer) half_.RunSilu(layer, layer + 1);
    half_.RunMaps(
        up, MapsOf(-1), MapsEnd::kKeepsPlanes,
        [&](int map, int, StateSums& g) { SetAll(Biases(1 + map), g); },
        [&](int map, int tile, StateSums& g, StatePairs&) {
          half_.planes().AddToDouble(z1_, map, tile, g);
        });
    layers_.GoOn(half_);
  }

  const ConvLaunch& launch_;
  ConvLayers layers_, half_;
  const int n_;
  const float* z0_ = nullptr;
  float* z1_ = nullptr;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    TableKernel(const __grid_constant__ ConvLaunch launch,
                const __grid_constant__ ConvLaunch half) {
  ConvTableSolver(launch, half).Run();
}

}  // namespace

const void* ConvTableKernel() { return reinterpret_cast<const void*>(TableKernel); }

}  // namespace hyperserve::kernels
