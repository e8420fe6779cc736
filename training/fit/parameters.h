// The tensors of a net under training: how they start, which of them are fitted, how they are
// written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/layers/kind.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "training/data/random.h"

namespace hyperserve {

// float32 on the CPU, every tensor of ListTensors(layers, prefix) as its entry says that it starts.
TensorMap InitialTensors(const LayerList& layers, std::string_view prefix, RandomStream& stream);

// Sets the last layer's weight and bias to zero, so that the net says 0 before its first step: a
// correction then starts as the classical method. Nothing where the last layer has none.
void ZeroLastLayer(const LayerList& layers, std::string_view prefix, TensorMap& tensors);

// Copies on `device`; those that are fitted (all but running statistics) require a gradient.
TensorMap TrainableCopies(const TensorMap& tensors, at::Device device);
std::vector<at::Tensor> Fitted(const TensorMap& tensors);  // in the order of the names

// Detached copies on the CPU.
TensorMap Snapshot(const TensorMap& tensors);

// The bytes of a safetensors file.
std::string SerializeTensors(const TensorMap& tensors);

}  // namespace hyperserve
