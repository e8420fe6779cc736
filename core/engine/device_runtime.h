// A DeviceRuntime owns the state of one device that outlives a run, such as streams, and starts
// runs on the engine that ChooseEngine names. A process has one for each device that it uses. Runs
// are cheap to start and to destroy. No type of LibTorch crosses this header, and no exception
// leaves it: failures are statuses as those of
// Run::Advance.
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
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Thread-safe. It must outlive its runs, since they give their streams back.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual std::string_view device() const = 0;  // "cpu", "cuda:0"
  virtual EngineKinds engines() const = 0;      // in the order of preference

  // The run belongs to the caller. `choice` tells which engine makes it, and why no preferred one
  // does.
  struct StartedRun {
    std::unique_ptr<Run> run;
    EngineChoice choice;
  };
  // A run without rows. The caller means to admit `rows` rows first; on CUDA they decide the run's
  // bucket. Any thread. Blocks while weights are packed or copied to the device, at their first
  // use. Fails as ChooseEngine does, and where the device fails as Run::Advance does.
  virtual absl::StatusOr<StartedRun> StartRun(const BatchSpec& spec, int64_t rows) = 0;

  // Solves `rows` rows of zeros (or noise) once, so that later runs of the spec find memory,
  // kernels and copies of the weights ready. Blocks until the solve has ended. `cancelled` as in
  // Run::Advance; fails as StartRun, Admit and Advance do. On CUDA it also captures the step of the
  // spec and the bucket of `rows`, where a step of that kind is captured; a step that cannot be
  // captured is no failure. The zeros are the data and the condition: a spec of guidance, knots or
  // kVjp, whose rows bring more, is kInvalidArgument.
  virtual absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                              const std::function<bool()>& cancelled) = 0;

  // Evaluates each net and a map of the spec once in this thread, on zeros, in the bucket of
  // `rows`: LibTorch keeps for each thread what cuDNN planned for a convolution's sizes. Blocks
  // until that has ended. Fails as WarmUp does. A runtime that keeps nothing for a thread does
  // nothing.
  virtual absl::Status WarmThread(const BatchSpec&, int64_t /*rows*/) { return absl::OkStatus(); }
};

// `device`: "cpu", "cuda" (the first) or "cuda:N". kInvalidArgument for a device that this machine
// does not have. Blocks while the driver opens a device; kInternal where LibTorch throws meanwhile.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeDeviceRuntime(
    std::string_view device, StreamPriority priority = StreamPriority::kLeast);

// Splits a plan. SetPlan sets method, stepping and grid, which all rows of a batch share; ControlOf
// returns the steps or tolerances, which each segment has for itself.
void SetPlan(const StepPlan& plan, BatchSpec& spec);
// Fixed plans ignore `max_steps`.
StepControl ControlOf(const StepPlan& plan, int64_t max_steps = kMaxStepsDefault);

// Solves one segment alone, from start to end; blocks the caller. For the gate, the trainer and
// tests. Sets the plan and the dtype of the data in the copies of spec and segment; a step limit in
// segment.control is kept. kInvalidArgument where the plan is hypersolved and the spec has no
// correction, or the other way round; else fails as StartRun, Admit and Advance do.
absl::StatusOr<BatchResult> SolveAlone(DeviceRuntime& runtime, BatchSpec spec, const StepPlan& plan,
                                       Segment segment,
                                       const std::function<bool()>& cancelled = nullptr);

}  // namespace hyperserve
