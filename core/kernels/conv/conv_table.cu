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

// Vector j is x_{j+1}, with what is known of its sum; vectors from n on those of the parts of the
// readout's first layer.
template <bool kReadout>
class ConvTableSolver {
 public:
  __device__ ConvTableSolver(const ConvLaunch& launch, const ConvLaunch& readout)
      : launch_(launch),
        layers_(launch),
        readout_(readout, layers_),
        n_(launch.layout.evaluations) {}

  __device__ __forceinline__ void Run() {
    layers_.Prepare();
    if constexpr (kReadout) readout_.Prepare();
    layers_.ForRows(MapsOf(-1), [&](int64_t row) {
      Solve(row);
      if (kReadout && !readout_.planes().Fits()) launch_.rows.unfit[row] = kRowUnfit;
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
    readout_.planes().StartRow();
    layers_.Fill(kBefore, [&](int tile, StatePairs& pairs) {
      StateSums z;
      layers_.planes().Read(z0_, tile, z);
      PackState(z, pairs);
    });
    const int sources = kReadout ? n_ + 1 : n_;
#pragma unroll 1
    for (int source = -1; source < sources; ++source) {
      if (source >= 0 && source < n_) Evaluate(source);
      Map(source);
    }
    if constexpr (kReadout) AddReadout();
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
    if constexpr (!kReadout) return MapsOf(-1);
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
          Begin(map, state, x);
        },
        [&](int map, int tile, StateSums& x, StatePairs& pairs) {
          if (map > 0 || !is_slope) {
            return ConvPlanes::Save(layers_.Vector(first + map), tile, x);
          }
          PackState(x, pairs);
          if (source + 1 == n_) layers_.planes().Store(z1_, tile, x);
        },
        [&](const ConvLayerLayout& layer, uint32_t weights) {
          if constexpr (kReadout) Gather(source, layer, weights);
        });
    if (kReadout && source == n_) {
      readout_.planes().AwaitWrites(launch_.layout.readout_parts * kConvChannelsMax, kBefore);
    }
  }

  // The part of a readout's first layer that reads this source.
  __device__ __forceinline__ void Gather(int source, const ConvLayerLayout& layer,
                                         uint32_t weights) {
#pragma unroll 1
    for (int tile = ConvPlanes::Group(); tile < readout_.tiles(); tile += kConvGroups) {
#pragma unroll 1
      for (int part = 0; part < layer.gathers; ++part) {
        StateSums x;
        if (source < 0) {
          SetAll(Biases(part), x);
        } else {
          ConvPlanes::Load(layers_.Vector(n_ + part), tile, x);
        }
        if (launch_.layout.readout_scale == 2) {
          layers_.AddGather<2>(layer, weights, part, readout_.planes(), tile, x);
        } else {
          layers_.AddGather<1>(layer, weights, part, readout_.planes(), tile, x);
        }
        if (source < n_) {
          ConvPlanes::Save(layers_.Vector(n_ + part), tile, x);
          continue;
        }
        StatePairs pairs;
        PackSilu(x, pairs);
        readout_.planes().Write<kConvChannelsMax>(kBefore, tile, pairs,
                                                  part * kConvChannelsMax / 8);
      }
    }
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

  // Those of a readout: of the parts of its first layer, then of those of its last.
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

  // z1 += g, from its first layer's values in the planes of the readout.
  __device__ __forceinline__ void AddReadout() {
    readout_.GoOn(layers_);
    const int up = launch_.layout.layers_count - 1, parts = launch_.layout.readout_parts;
#pragma unroll 1
    for (int layer = MapsOf(n_) + 1; layer < up; ++layer) readout_.RunSilu(layer, layer + 1);
    readout_.RunMaps(
        up, MapsOf(-1), MapsEnd::kKeepsPlanes,
        [&](int map, int, StateSums& g) { SetAll(Biases(parts + map), g); },
        [&](int map, int tile, StateSums& g, StatePairs&) {
          readout_.planes().AddToWhole(z1_, launch_.layout.readout_scale, map, tile, g);
        },
        [](const ConvLayerLayout&, uint32_t) {});
    layers_.GoOn(readout_);
  }

  const ConvLaunch& launch_;
  ConvLayers layers_, readout_;
  const int n_;
  const float* z0_ = nullptr;
  float* z1_ = nullptr;
};

// With a readout or without: the code of one that is not run would slow the other.
template <bool kReadout>
__global__ void __launch_bounds__(kConvThreads, 1)
    TableKernel(const __grid_constant__ ConvLaunch launch,
                const __grid_constant__ ConvLaunch readout) {
  ConvTableSolver<kReadout>(launch, readout).Run();
}

}  // namespace

const void* ConvTableKernel(bool readout) {
  return readout ? reinterpret_cast<const void*>(TableKernel<true>)
                 : reinterpret_cast<const void*>(TableKernel<false>);
}

}  // namespace hyperserve::kernels
