// A package of AOTInductor names libtorch.so among the libraries that it needs. That library is
// empty and stands for torch_cpu and, with CUDA, torch_cuda, which this program is linked with
// itself; the wheel's own cannot be loaded on a machine without CUDA.
#pragma once

#include "absl/status/status.h"

namespace hyperserve {

// Makes the name libtorch.so known to the dynamic linker, for the life of the process: loads an
// empty library of that name from memory, unless there is one. Thread-safe; later calls do nothing.
// kFailedPrecondition where the system lets no library be loaded from memory.
absl::Status ProvideLibTorchName();

}  // namespace hyperserve
