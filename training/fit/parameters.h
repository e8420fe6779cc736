// The tensors of a net in training: their initial values, which of them are fitted.
#pragma once

#include <string>
#include <string_view>

#include "core/model/layers/kind.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "training/data/random.h"

namespace hyperserve {

// Every tensor of ListTensors(layers, prefix), float32 on the CPU, with the initial values that its
// entry (core/model/layers) gives.
TensorMap InitialTensors(const LayerList& layers, std::string_view prefix, RandomStream& stream);

// Sets the weight and bias of the last layer that has any to zero, so that the net's output starts
// at 0 and a correction starts as the classical method.
void ZeroLastLayer(const LayerList& layers, std::string_view prefix, TensorMap& tensors);

// Copies on `device`, float32. The fitted ones (all but running statistics) require a gradient.
TensorMap TrainableCopies(const TensorMap& tensors, at::Device device);

// Puts the place of a stream into the state of a fit, and goes back to it.
void SaveStream(const RandomStream& stream, TensorMap& state);
// Precondition: SaveStream wrote the state.
void LoadStream(const TensorMap& state, RandomStream& stream);

}  // namespace hyperserve
