// What the fused convolution kernel (conv.h) takes. Host code without CUDA. Pure; any thread.
#pragma once

#include <string>

#include "core/kernels/conv/conv_model.h"

namespace hyperserve::kernels {

inline constexpr int kConvChannelsMax = 32;    // of the state
inline constexpr int kConvOutputsMax = 64;     // of a hidden layer, of a readout too
inline constexpr int kConvLayersMax = 12;      // of field and correction together
inline constexpr int kConvEvaluationsMax = 8;  // of a table
inline constexpr int kConvMiddleMax = 5;       // layers of a readout between the first and the last
// A border class needs a first, a last and another row and column.
inline constexpr int kConvPixelsLeast = 3;
inline constexpr int kConvPixelsMost = 64;

// Empty, or why the kernel does not take the model, whatever the device. Memory is another matter:
// ConvFits (conv.h).
std::string ConvMisfit(const ConvModel& model);

}  // namespace hyperserve::kernels
