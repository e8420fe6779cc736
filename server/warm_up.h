// First use costs what later use does not: memory, kernels, device copies of weights. Paid here,
// before anybody waits for it.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "server/batching/batcher.h"

namespace hyperserve {

// Solves one row of zeros of the model, with the correction where one is given, on every solver
// that is free. Blocks, until `interrupted` (thread-safe) says yes: then kCancelled. It is
// not asked after WarmUp has returned. An overloaded batcher is no error: then its engines are
// warm.
absl::Status WarmUp(const std::shared_ptr<const Model>& model,
                    const std::shared_ptr<const Hypersolver>& correction, int solvers,
                    const std::function<bool()>& interrupted, Batcher& batcher, const Clock& clock);

}  // namespace hyperserve
