// The weights of a flow in the order in which the fused kernel (flow.h) reads them from shared
// memory, and where in it what stands. Host code; made once per model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

// Vectors of a row in shared memory; slope i stands at kSlotSlope1 + i - 1. State: at the start of
// the step. Next: at the start of the row that the lane solves next.
enum FlowSlot : int {
  kSlotConstants = -1,
  kSlotState0,
  kSlotNext,
  kSlotState,
  kSlotSlope1,
  kSlotSlope2
};

inline constexpr int kFlowTileBytes = 128;

// Where the parts of a net stand in the image, offsets in bytes. Matrices stand in tiles (mma.cuh),
// padded with zeros to the layout's width, with one step of depths more for the bias.
struct FlowNetLayout {
  // The slots of what the net reads after the state that it is evaluated at; kSlotConstants: (step,
  // depth). Each is one step of the first layer's depth for each four dimensions.
  uint32_t list = 0;
  int inputs = 0;
  uint32_t first = 0, square = 0, last = 0, last_bias = 0, slopes = 0;
  // In kExact: the low halves of the squares' weights; what undoes each square's scale, floats; the
  // hidden biases, floats [layer][width]. There `first` holds floats [input][width], four inputs a
  // step, and squares have no step for a bias.
  uint32_t square_low = 0, square_scales = 0, biases = 0;
  int squares = 0;  // layers between the first and the last
  bool reads_first_state = false;
  // No hidden number leaves fp16 while no input is larger than this.
  float input_max = 0.0f;
};

// What the kernel must know of a packed flow. Offsets in bytes.
struct FlowLayout {
  FlowPrecision precision = FlowPrecision::kFast;
  int dimensions = 0;
  int width = 0;    // of hidden layers, padded: 64 or 128
  int outputs = 0;  // dimensions, padded: 2 or 8
  FlowActivation activation = FlowActivation::kSoftplus;
  // The correction's is either the field's or the rectifier.
  FlowActivation correction_activation = FlowActivation::kRectifier;
  FlowNetLayout field, correction;
  bool corrected = false;  // there is a correction
  // Of a model with a table: where its numbers stand (FlowTableAccess), and its evaluations; -1:
  // none.
  uint32_t table = 0;
  int evaluations = -1;
  uint32_t bytes = 0;
};

// On the host; the caller copies the bytes to a device.
struct FlowImage {
  FlowLayout layout;
  std::vector<std::byte> bytes;
};

// Precondition: FlowMisfit(model).empty() (flow_fit.h).
FlowImage PackFlow(const FlowModel& model, FlowPrecision precision = FlowPrecision::kFast);

}  // namespace hyperserve::kernels
