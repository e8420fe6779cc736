// What the kernels of conv.h are launched with. Between conv.cu and the files of the kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_rows.h"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// Pixels of a block stand at row * pitch + column, the last column of the pitch being a border of
// zeros; a plane has a row of border above and one below.
struct ConvGeometry {
  int blocks;      // of an image
  int block_rows;  // of the image, in a block
  int pitch, tiles;
  int pitch_inverse;  // 2^16 / pitch, rounded up: exact for the pixels of a block
  uint32_t plane_bytes;
  // Of planes that layers read and write: with two, a layer reads one and writes the other.
  int sets = 1;
};

// The tableau times eps; of an adaptive plan the tableau itself.
struct ConvSteps {
  int steps, stages, hypersolved;
  float a[kStagesMax + 1][kStagesMax];  // row `stages`: b
  float c[kStagesMax];
  float g, eps, s0;
};

// Of an adaptive plan.
struct ConvControl {
  int embedded_order, attempts_max;
  int evaluations_max;  // of a block in a launch
  float error[kStagesMax];
  float rtol, atol, s1;
};

// The argument of a kernel, by value.
struct ConvLaunch {
  ConvLayout layout;
  const uint4* image;
  ConvSteps steps;
  ConvControl control;
  ConvGeometry geometry;
  uint32_t planes;  // where they begin in shared memory, in bytes
  int vectors;      // of a block, in the scratch memory
  ConvRows rows;
};

// The kernels of one-step methods, of learned tables and of error control. Each takes a ConvLaunch,
// that of tables another one: the same at the height and width of a readout. ConvRelayKernel is
// that of one-step methods for images that have more than one block and two sets of planes.
const void* ConvStepsKernel();
const void* ConvRelayKernel();
const void* ConvTableKernel(bool readout);
const void* ConvAdaptiveKernel();

}  // namespace hyperserve::kernels
