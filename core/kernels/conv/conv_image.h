// The weights of a convolutional field and its correction in the order in which the fused kernel
// (conv.h) streams them into shared memory, and where in it what stands. Host code; made once per
// model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_model.h"

namespace hyperserve::kernels {

inline constexpr int kConvBorderClasses = 9;

// What stands in planes of its own aside; kBefore: the planes of the layer before.
enum ConvAside : int { kAsideSlope1, kAsideSlope2, kAsideState0, kAsides, kBefore = kAsides };

// Channels stand in planes of eight, sixteen to a step of the products. A layer's part of the image
// holds
//   halves [9 taps][outputs / 8][inputs / 8] of tiles [8 outputs][8 inputs]
//   floats bias [outputs], slopes [outputs]
//   floats step, depth [9 border classes][outputs]: the sums of the taps that fall on the image,
//          by which a constant channel adds to the bias; only with `constants`
// A layer of a readout has its outputs in parts of kConvChannelsMax, each of them a layer in the
// image, since one of 64 channels would want more memory than two layers of the field.
// Maps of a table: halves [maps][outputs / 8][inputs / 8] of the same tiles, then, for a readout,
// [gathers][scale][scale] of the same, and no floats.
struct ConvLayerLayout {
  uint32_t offset = 0, bytes = 0;  // in the image, multiples of 16; bytes: of a part
  uint32_t bias = 0;               // from the beginning of a part
  int outputs = 0;                 // of a part, padded: 32, 48 or 64
  int parts = 1;
  int steps_before = 0, steps_aside = 0;
  int maps = 0;
  int gathers = 0;  // convolutions of scale x scale with that stride, after the maps
  ConvActivation activation = ConvActivation::kNone;
  bool constants = false;
};

// Of a map, for each step of the products.
inline constexpr uint32_t kConvMapStepBytes = kConvChannelsMax * 16 * 2;
inline constexpr uint32_t kConvStateMapBytes = kConvChannelsMax / 16 * kConvMapStepBytes;
// A table holds floats s_i [kConvTableFirst], then for each j the diagonal of a_j and c_j, as many
// as kConvChannelsMax each. Layers: the field's, then the maps of x_0 (a_0 .. a_{n-1} without their
// diagonals), then those of each slope k_i (B_ii .. B_{n-1,i}). A readout adds its down_bias, in
// parts of kConvChannelsMax, and its up_bias, [scale][scale][kConvChannelsMax], to the floats; to
// the layers of x_0 and k_i their parts of its first layer, as gathers; then the layers
// that x_n goes through: its part of the first, those of 3x3, and a map for each part of a pixel.
inline constexpr int kConvTableFirst = kConvEvaluationsMax;
inline constexpr int kConvPartsMax = kConvLayersMax + kConvEvaluationsMax + 3 + kConvMiddleMax;

// Where in the image what stands. Offsets in bytes.
struct ConvLayout {
  int channels = 0, height = 0, width = 0;
  ConvLayerLayout layers[kConvPartsMax] = {};
  int field_layers = 0, layers_count = 0;
  int evaluations = 0;       // of a table; 0: none
  int readout_scale = 0;     // 0: no readout
  int readout_parts = 0;     // of its first layer
  int readout_planes = 0;    // of its widest layer
  uint32_t table = 0;        // in the image
  int planes = 0;            // of the widest layer
  int aside_first[kAsides];  // the first plane of each, from the first aside; -1: nobody reads it
  int planes_aside = 0;
  uint32_t layer_bytes = 0;  // the most of a layer
  uint32_t bytes = 0;
};

// On the host; the caller copies the bytes to a device.
struct ConvImage {
  ConvLayout layout;
  std::vector<std::byte> bytes;
};

// Precondition: ConvMisfit(model).empty() (conv_fit.h).
ConvImage PackConv(const ConvModel& model);

}  // namespace hyperserve::kernels
