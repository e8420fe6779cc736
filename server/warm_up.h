// The first use of a spec costs extra: memory, kernels, copies of weights on the device. WarmUp
// pays for it on the registry's thread before a request can wait for it. It makes no request and
// uses neither a queue nor a solver thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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

// The calling thread alone, or another beside it: while one captures work in a lane of a GPU, the
// other does in the other lane.
enum class WarmUpThreads { kOne, kTwo };

// Makes one step of every spec at the batch sizes of WarmRows, and one step of each in tier fast
// where the device has an engine for it. Where tables are captured: every table that is calibrated
// or claimed. Inputs also once as bytes. kCancelled where `interrupted` says yes; else it fails as
// DeviceRuntime::WarmUp does. `interrupted` is called on the calling thread only, and not after
// WarmUp has returned; while it blocks, the other thread makes no further evaluation of f.
absl::Status WarmUp(const WarmUpSubject& subject, int64_t batch_rows_max,
                    const std::function<bool()>& interrupted, DeviceRuntime& runtime,
                    WarmUpThreads threads = WarmUpThreads::kOne);

// Replaces the times of the calibrated plans by those of this device, after WarmUp: batches of the
// sizes of TimedRows; the median of up to three runs, fewer where they take long. Of a plan with
// many steps it runs a part and counts the rest in proportion; plans with the same part share its
// runs. A plan that the device does not solve loses its times. Fails as WarmUp does.
absl::Status TimePlans(const WarmUpSubject& subject, int64_t batch_rows_max,
                       const std::function<bool()>& interrupted, DeviceRuntime& runtime,
                       const Clock& clock);

// Calls a function on each thread that solves, with its device, and blocks until all have returned,
// but for a thread that is never idle: Batcher::DoOnSolvers.
using OnSolvers = std::function<void(const std::function<void(DeviceRuntime&)>&)>;

// Evaluates the nets of images on each of these threads at the sizes of PlannedRows. kCancelled
// where `interrupted` says yes; else it fails as DeviceRuntime::WarmThread does.
absl::Status WarmSolvers(const WarmUpSubject& subject, int64_t batch_rows_max,
                         const std::function<bool()>& interrupted, const DeviceRuntime& runtime,
                         const OnSolvers& on_solvers);

// What a batch may have.
struct BatchLimits {
  int64_t rows_max = 1;
  double macs_max = 1;  // of one evaluation of f
};

// WarmUp on each device, WarmSolvers, and TimePlans on the first device.
absl::Status WarmAndTime(const WarmUpSubject& subject, const BatchLimits& limits,
                         const std::function<bool()>& interrupted,
                         std::span<const std::unique_ptr<DeviceRuntime>> runtimes,
                         const OnSolvers& on_solvers, const Clock& clock);

}  // namespace hyperserve
