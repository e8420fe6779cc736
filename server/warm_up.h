// First use costs what later use does not: memory, kernels, device copies of weights. Paid here, on
// the registry's thread, before anybody waits for it. No request, no queue and no solver is used.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "server/registry/registry_options.h"

namespace hyperserve {

// One spec for each method, stepping and tier that the subject's plans need: those that are
// calibrated, the default plan, and those that the correction claims. Pure.
std::vector<BatchSpec> WarmUpSpecs(const WarmUpSubject& subject);

// Rows of the batches that are worth warming: one on a CPU, where nothing depends on the size;
// every power of two up to `batch_rows_max` on CUDA, where each is a bucket of its own. Pure.
std::vector<int64_t> WarmUpRows(std::string_view device, int64_t batch_rows_max);

// Makes a step of every spec at every number of rows. Ends with kCancelled where `interrupted` says
// yes; it is not asked after WarmUp has returned.
absl::Status WarmUp(const WarmUpSubject& subject, int64_t batch_rows_max,
                    const std::function<bool()>& interrupted, DeviceRuntime& runtime);

}  // namespace hyperserve
