// One DeviceRuntime for each device that serves: it owns what outlives a run (streams, memory,
// captured programs) and starts runs on the engine that ChooseEngine names. Runs come and go
// cheaply. No LibTorch type crosses this header.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Thread-safe. Outlives its runs.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual std::string_view device() const = 0;  // "cpu", "cuda:0"
  virtual EngineKinds engines() const = 0;      // in the order of preference

  // A run without rows, of which `rows` will be admitted at once; on CUDA they decide its bucket.
  // Fails as ChooseEngine does.
  struct StartedRun {
    std::unique_ptr<Run> run;
    EngineChoice choice;
  };
  virtual absl::StatusOr<StartedRun> StartRun(const BatchSpec& spec, int64_t rows) = 0;

  // Pays what the first use of the spec at this many rows costs, off the serving path: memory,
  // kernels, copies of weights. `cancelled` as in Run::Advance.
  virtual absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                              const std::function<bool()>& cancelled) = 0;
};

// "cpu", "cuda" (the first) or "cuda:N". kInvalidArgument for a device that is not there.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeDeviceRuntime(std::string_view device);

// A plan's part in what rows have in common, and its part that is each row's own.
void SetPlan(const StepPlan& plan, BatchSpec& spec);
StepControl ControlOf(const StepPlan& plan, int64_t max_steps = kMaxStepsDefault);

// One segment alone from start to end: for the gate, the trainer, the tests. The plan, and the
// dtype of the data, are filled into spec and segment. `cancelled` as in Run::Advance.
absl::StatusOr<BatchResult> SolveAlone(DeviceRuntime& runtime, BatchSpec spec, const StepPlan& plan,
                                       Segment segment,
                                       const std::function<bool()>& cancelled = nullptr);

}  // namespace hyperserve
