// The first use of a spec costs extra: memory, kernels, copies of weights on the device. WarmUp
// pays for it on the registry's thread before a request can wait for it. It makes no request and
// uses neither a queue nor a solver thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "server/clock/clock.h"
#include "server/registry/registry_options.h"

namespace hyperserve {

// The specs to warm, each once: those of the calibrated plans, of the default plan (for a model)
// and of the plans that use the correction (for a generation). Pure.
std::vector<BatchSpec> WarmUpSpecs(const WarmUpSubject& subject);

// The batch sizes to warm, in rows: 1 on a CPU, where the cost does not depend on the size; every
// power of two up to `batch_rows_max` on CUDA, where each is a bucket of its own. Pure.
std::vector<int64_t> WarmUpRows(std::string_view device, int64_t batch_rows_max);

// Makes one step of every spec at every batch size, on the calling thread, and one step of each in
// tier fast where the device has an engine for it, which knows no batch sizes. kCancelled where
// `interrupted` says yes; else it fails as DeviceRuntime::WarmUp does. `interrupted` is not called
// after WarmUp has returned.
absl::Status WarmUp(const WarmUpSubject& subject, int64_t batch_rows_max,
                    const std::function<bool()>& interrupted, DeviceRuntime& runtime);

// Replaces the times of the calibrated plans by those of this device, after WarmUp: batches of the
// sizes of WarmUpRows, on a CPU also of `batch_rows_max`; the median of up to three runs, fewer
// where they take long. Of a plan with many steps it runs a part and counts the rest in proportion.
// A plan that the device does not solve loses its times. Fails as WarmUp does.
absl::Status TimePlans(const WarmUpSubject& subject, int64_t batch_rows_max,
                       const std::function<bool()>& interrupted, DeviceRuntime& runtime,
                       const Clock& clock);

}  // namespace hyperserve
