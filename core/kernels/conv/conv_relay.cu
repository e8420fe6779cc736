// The kernel of fixed steps of a one-step method, of images that have more than one block and room
// for two sets of planes.
#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_relay.cuh"
#include "core/kernels/conv/conv_stage.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {
namespace {

// A row has a pass that puts its state into the planes, then one for each layer. Warpgroups take
// tiles by turns, through passes and rows.
class ConvRelayStepper {
 public:
  explicit __device__ ConvRelayStepper(const ConvLaunch& launch)
      : launch_(launch),
        relay_(launch),
        stage_(launch, relay_.Vector(0)),
        row_(blockIdx.x / launch.geometry.blocks),
        solvers_(gridDim.x / launch.geometry.blocks) {
    const int corrections =
        launch.steps.hypersolved ? launch.layout.layers_count - launch.layout.field_layers : 0;
    layers_of_step_ = launch.steps.stages * launch.layout.field_layers + corrections;
    const auto rows = static_cast<uint32_t>((launch.rows.count - row_ + solvers_ - 1) / solvers_);
    layers_ = rows * launch.steps.steps * layers_of_step_;
    passes_ = layers_ + rows;
  }

  __device__ __forceinline__ void Run() {
    relay_.Prepare(layers_, [&](uint32_t n) { return IndexOf(n); });
    MarkRows();
    relay_.planes().AwaitBlocks();
    StartRow();
    const int tiles = relay_.tiles();
    int position = ConvPlanes::Group();
    while (true) {
      for (; position >= tiles; position -= tiles) NextPass();
      if (pass_ >= passes_) break;
      RunTile(position, relay_.TileOf(position));
      position += kConvGroups;
    }
    // The turn that nobody takes.
    if (ConvPlanes::Group() == static_cast<int>(passes_ * tiles % kConvGroups)) AwaitTurn();
  }

 private:
  // Of layer n of all that this block runs.
  __device__ __forceinline__ int IndexOf(uint32_t n) const {
    const int in_step = static_cast<int>(n % layers_of_step_), field = launch_.layout.field_layers;
    const int of_field = launch_.steps.stages * field;
    return in_step < of_field ? in_step % field : field + in_step - of_field;
  }

  // Before the other blocks may find that a row does not fit.
  __device__ __forceinline__ void MarkRows() const {
    if (relay_.planes().rank() != 0) return;
    for (int64_t row = row_ + threadIdx.x * solvers_; row < launch_.rows.count;
         row += kConvThreads * solvers_) {
      launch_.rows.unfit[row] = kRowFits;
    }
  }

  __device__ __forceinline__ void StartRow() {
    filling_ = true;
    stage_.StartRow(relay_.planes(), row_);
    relay_.planes().StartRow();
  }

  __device__ __forceinline__ void NextPass() {
    sent_ = Sent();
    ++pass_;
    if (filling_) {
      filling_ = false;
      return;
    }
    ++layer_;
    if (stage_.Advance()) return;
    if (!relay_.planes().Fits()) launch_.rows.unfit[row_] = kRowUnfit;
    row_ += solvers_;
    StartRow();
  }

  // What this pass puts aside; kBefore: nothing.
  __device__ __forceinline__ int Aside() const {
    if (filling_) return stage_.AsideOfStart();
    return stage_.EndsNet() ? stage_.AsideOfStage() : kBefore;
  }

  // Channels that this pass sends to the blocks beside.
  __device__ __forceinline__ int Sent() const {
    const int outputs = filling_ ? kConvChannelsMax : launch_.layout.layers[stage_.layer()].outputs;
    return outputs + (Aside() == kBefore ? 0 : kConvChannelsMax);
  }

  __device__ __forceinline__ void RunTile(int position, int tile) {
    relay_.AwaitAround(pass_, position, tile, sent_);
    if (filling_) {
      FillTile(tile);
    } else {
      RunLayerTile(tile);
    }
    relay_.TellWritten(pass_, tile);
    if (!filling_) relay_.TellUsed(layer_);
    if (position + 1 < relay_.tiles()) return;
    if (!filling_ && layer_ + 2 < layers_) relay_.FetchAfterNext(layer_, IndexOf(layer_ + 2));
    if (pass_ + 1 == passes_) relay_.AwaitLastRows(pass_, Sent());
  }

  __device__ __forceinline__ void FillTile(int tile) {
    relay_.TakeTurn();
    PassTurn();
    StatePairs pairs;
    stage_.Begin(relay_.planes(), tile, pairs);
    const int aside = Aside();
    if (aside != kBefore) relay_.planes().Write<kConvChannelsMax>(aside, tile, pairs);
    relay_.planes().Write<kConvChannelsMax>(kBefore, tile, pairs);
  }

  __device__ __forceinline__ void RunLayerTile(int tile) {
    const int index = stage_.layer();
    const float depth = stage_.Depth();
    if (!stage_.EndsNet()) return relay_.RunHidden(layer_, index, depth, tile);
    relay_.RunLast(
        layer_, index, depth, tile, [&](StateSums& z) { stage_.LoadState(tile, z); },
        [&](StateSums& sums, StateSums& z, StatePairs& pairs) {
          stage_.End(relay_.planes(), tile, sums, z, pairs);
        });
  }

  const ConvLaunch& launch_;
  ConvRelay relay_;
  ConvStage stage_;
  int64_t row_;
  const int64_t solvers_;
  uint32_t layers_of_step_, layers_, passes_;
  uint32_t pass_ = 0, layer_ = 0;  // where this warpgroup is
  int sent_ = 0;                   // of the pass before, Sent()
  bool filling_ = true;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    RelayKernel(const __grid_constant__ ConvLaunch launch) {
  ConvRelayStepper(launch).Run();
}

}  // namespace

const void* ConvRelayKernel() { return reinterpret_cast<const void*>(RelayKernel); }

}  // namespace hyperserve::kernels
