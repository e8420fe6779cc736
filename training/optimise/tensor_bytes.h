// Tensors by name as the bytes of a safetensors file, and back. Copies; any thread.
#pragma once

#include <map>
#include <string>

#include "core/io/safetensors.h"
#include "core/model/net/net.h"

namespace hyperserve {

// All tensors of the file, copied, on the CPU in their own types.
TensorMap TensorsOf(const SafetensorsFile& file);

// The bytes of a file with the tensors, which may be on any device, and metadata.
std::string SerializeTensors(const TensorMap& tensors,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace hyperserve
