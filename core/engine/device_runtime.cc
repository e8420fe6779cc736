#include "core/engine/device_runtime.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/captured/capture_lanes.h"
#include "core/engine/captured/step_graphs.h"
#include "core/engine/captured/table_graphs.h"
#include "core/engine/captured/table_run.h"
#include "core/engine/device.h"
#include "core/engine/device_faults.h"
#include "core/engine/devices.h"
#include "core/engine/fused/conv_run.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/fused_convs.h"
#include "core/engine/fused/fused_flow.h"
#include "core/engine/fused/fused_flows.h"
#include "core/engine/fused/fused_run.h"
#include "core/engine/gradient/gradient_run.h"
#include "core/engine/paired_run.h"
#include "core/engine/readable/readable_run.h"
#include "core/engine/readable/slot_run.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/flow/flow_model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

constexpr std::string_view kFused = "fused", kGraph = "graph", kReadable = "readable";
constexpr int64_t kEvaluationsAtOnce = 64;  // of one Advance

absl::StatusOr<std::vector<SolvedSegment>> SolveToEnd(Run& run,
                                                      const std::function<bool()>& cancelled) {
  for (bool done = false; !done;) {
    HS_ASSIGN_OR_RETURN(done, run.Advance(kEvaluationsAtOnce, cancelled));
  }
  return run.TakeFinished();
}

// The step limit of a control. A plan has none, so it comes from the segment.
int64_t MaxStepsOf(const StepControl& control) {
  const auto* error = std::get_if<ErrorControl>(&control);
  return error == nullptr ? kMaxStepsDefault : error->max_steps;
}

// The free streams of one device. LibTorch keeps freed memory for each stream, so a stream that is
// given back is reused before another is taken from LibTorch's pool. Thread-safe; must outlive its
// leases.
class Streams {
 public:
  Streams(at::Device device, StreamPriority priority) : device_(device), priority_(priority) {}

  StreamLease Lease() {
    return {new c10::Stream(Take()), [this](const c10::Stream* stream) {
              const std::lock_guard lock(mutex_);
              free_.push_back(*stream);
              delete stream;
            }};
  }

 private:
  c10::Stream Take() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const c10::Stream stream = free_.back();
      free_.pop_back();
      return stream;
    }
    return NextStream(device_, priority_);
  }

  const at::Device device_;
  const StreamPriority priority_;
  std::mutex mutex_;
  std::vector<c10::Stream> free_;  // guarded by mutex_
};

// What is captured on a device, in lanes that steps and tables share.
struct Captures {
  Captures(at::Device device, StreamPriority priority)
      : lanes(device, priority, CudaCaptureLane), steps(&lanes), tables(&lanes) {}
  CaptureLanes lanes;
  StepGraphs steps;
  TableGraphs tables;
  std::mutex trying;  // held by a warm-up that uses every lane
};

class TorchRuntime final : public DeviceRuntime {
 public:
  TorchRuntime(at::Device device, StreamPriority priority)
      : device_name_(device.str()),
        flows_([device](const kernels::FlowModel& flow, kernels::FlowPrecision precision) {
          return CudaFlow(flow, precision, device);
        }),
        convs_([device](const kernels::ConvModel& conv) { return CudaConv(conv, device); }),
        streams_(device, priority) {
    if (device.is_cuda()) {
      engines_.push_back({kFused, [this](const BatchSpec& spec, int64_t) {
                            return CatchDeviceFaults("packing a model", [&] {
                              return IsOfImages(spec) ? convs_.Supports(spec)
                                                      : flows_.Supports(spec);
                            });
                          }});
      captures_.emplace(device, priority);
      engines_.push_back({kGraph, [this](const BatchSpec& spec, int64_t rows) {
                            return RunsFromTable(spec.method.method)
                                       ? captures_->tables.Supports(spec, rows)
                                       : captures_->steps.Supports(spec, rows);
                          }});
    }
    engines_.push_back({kReadable, ReadableSupports});
  }

  std::string_view device() const override { return device_name_; }
  EngineKinds engines() const override { return engines_; }

  absl::StatusOr<StartedRun> StartRun(const BatchSpec& spec, int64_t rows) override {
    HS_ASSIGN_OR_RETURN(EngineChoice choice, ChooseEngine(spec, rows, engines_));
    return CatchDeviceFaults("starting a run", [&]() -> absl::StatusOr<StartedRun> {
      if (choice.engine == kGraph) {
        std::unique_ptr<Run> run = StartCaptured(spec, rows);
        if (run != nullptr) return StartedRun{.run = std::move(run), .choice = std::move(choice)};
        choice.engine = kReadable;
        absl::StrAppend(&choice.why, "; not graph: ", kGraphLanes, " runs use captured work now");
      }
      if (choice.engine == kReadable && SolvesStateApart(spec, on_gpu())) {
        return StartApart(spec, rows, std::move(choice));
      }
      if (choice.engine == kReadable) {
        const auto make = spec.derivative == Derivative::kVjp ? MakeGradientRun : MakeReadableRun;
        return StartedRun{.run = make(spec, streams_.Lease(), rows), .choice = std::move(choice)};
      }
      if (IsOfImages(spec)) {
        FindFusedConv find = [this, spec](int64_t evaluations) {
          return convs_.Find(spec, evaluations);
        };
        return StartedRun{.run = MakeConvRun(spec, streams_.Lease(), std::move(find)),
                          .choice = std::move(choice)};
      }
      FindFusedFlow find = [this, spec](int64_t evaluations) {
        return flows_.Find(spec, evaluations);
      };
      return StartedRun{.run = MakeFusedRun(spec, streams_.Lease(), std::move(find)),
                        .choice = std::move(choice)};
    });
  }

  absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                      const std::function<bool()>& cancelled) override {
    HS_ASSIGN_OR_RETURN(StartedRun started, StartRun(spec, rows));
    HS_RETURN_IF_ERROR(SolveZeros(*started.run, spec, control, rows, cancelled));
    started.run.reset();  // it may have a lane
    if (!captures_ || started.choice.engine == kFused) return absl::OkStatus();
    HS_ASSIGN_OR_RETURN(const bool captured, CatchDeviceFaults("warm-up", [&] {
                          return absl::StatusOr<bool>(Capture(spec, control, rows));
                        }));
    if (!captured) return absl::OkStatus();
    // The first run in each lane finds its memory.
    const std::lock_guard lock(captures_->trying);
    std::vector<StartedRun> runs;
    while (runs.size() < kGraphLanes) {
      HS_ASSIGN_OR_RETURN(started, StartRun(spec, rows));
      HS_RETURN_IF_ERROR(SolveZeros(*started.run, spec, control, rows, cancelled));
      runs.push_back(std::move(started));
    }
    return absl::OkStatus();
  }

  absl::Status WarmThread(const BatchSpec& spec, int64_t rows) override {
    HS_RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.method.method == Method::kLearned) {  // its maps are no nets of the space
      const std::vector<int>& steps = spec.correction->spec().steps;
      const auto first = std::ranges::find_if(steps, [](int n) { return n > 0; });
      const int n = first == steps.end() ? 0 : *first;  // 0: it has no maps
      HS_ASSIGN_OR_RETURN(const StartedRun started, StartRun(spec, rows));
      HS_RETURN_IF_ERROR(SolveZeros(*started.run, spec, FixedSteps{.steps = n}, rows, nullptr));
    }
    return CatchDeviceFaults("warm-up", [&] {
      const StreamLease stream = streams_.Lease();
      const TorchScope scope(*stream);
      EvaluateNets(spec, SetUpSolve(spec, rows, stream->device()), stream->device());
      if (on_gpu()) stream->synchronize();
      return absl::OkStatus();
    });
  }

 private:
  bool on_gpu() const { return captures_.has_value(); }

  // Null: every lane is taken.
  std::unique_ptr<Run> StartCaptured(const BatchSpec& spec, int64_t rows) {
    if (RunsFromTable(spec.method.method)) {
      std::optional<TableGraphs::Lease> lease = captures_->tables.Take(spec, rows);
      return lease ? MakeTableRun(spec, *std::move(lease)) : nullptr;
    }
    std::optional<StepGraphs::Lease> lease = captures_->steps.Take(spec, rows);
    if (!lease) return nullptr;
    return MakeSlotRun(spec, std::move(lease->stream), rows, std::move(lease->graph));
  }

  bool Capture(const BatchSpec& spec, const StepControl& control, int64_t rows) {
    if (!RunsFromTable(spec.method.method)) {
      return captures_->steps.Capture(spec, rows, streams_.Lease());
    }
    const int64_t steps = std::get<FixedSteps>(control).steps;
    return captures_->tables.Capture(spec, steps, rows, streams_.Lease());
  }

  // The state's engine is the one that it has without its density.
  absl::StatusOr<StartedRun> StartApart(const BatchSpec& spec, int64_t rows, EngineChoice choice) {
    HS_ASSIGN_OR_RETURN(StartedRun state, StartRun(StateAlone(spec), rows));
    absl::StrAppend(&choice.why, "; states by ", state.choice.engine, ", as without densities");
    return StartedRun{.run = PairRuns(std::move(state.run),
                                      MakeReadableRun(DensityAlone(spec), streams_.Lease(), rows)),
                      .choice = std::move(choice)};
  }

  static bool IsOfImages(const BatchSpec& spec) { return spec.model->state_shape().size() == 3; }

  static absl::Status SolveZeros(Run& run, const BatchSpec& spec, const StepControl& control,
                                 int64_t rows, const std::function<bool()>& cancelled) {
    const HostTensor zeros = ZeroRows(spec, rows);
    HostTensor condition;
    if (const Shape& features = spec.model->spec().condition; !features.empty()) {
      condition = HostTensor::Zeros(Dtype::kF32, {1, features[0]});
    }
    const Segment segment = {
        .rows = rows, .data = zeros.view(), .condition = condition.view(), .control = control};
    HS_RETURN_IF_ERROR(run.Admit(segment).status());
    return SolveToEnd(run, cancelled).status();
  }

  static HostTensor ZeroRows(const BatchSpec& spec, int64_t rows) {
    if (spec.entry == Entry::kNoise) return {};
    Shape shape =
        spec.entry == Entry::kInput ? spec.model->spec().input.shape : spec.model->state_shape();
    shape.insert(shape.begin(), rows);
    return HostTensor::Zeros(spec.dtype, std::move(shape));
  }

  const std::string device_name_;
  FusedFlows flows_;
  FusedConvs convs_;
  std::optional<Captures> captures_;  // on CUDA
  EngineKinds engines_;               // fixed after construction
  Streams streams_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeDeviceRuntime(std::string_view device,
                                                                 StreamPriority priority) {
  using Result = absl::StatusOr<std::unique_ptr<DeviceRuntime>>;
  return CatchExceptions("opening a device", [&]() -> Result {
    HS_ASSIGN_OR_RETURN(const at::Device found, FindDevice(device));
    return std::make_unique<TorchRuntime>(found, priority);
  });
}

void SetPlan(const StepPlan& plan, BatchSpec& spec) {
  spec.method = std::visit([](const auto& one) { return one.method; }, plan);
  const auto* fixed = std::get_if<FixedPlan>(&plan);
  spec.stepping = fixed != nullptr ? Stepping::kFixed : Stepping::kErrorControlled;
  spec.grid = fixed != nullptr ? fixed->grid : StepGrid();
}

StepControl ControlOf(const StepPlan& plan, int64_t max_steps) {
  if (const auto* fixed = std::get_if<FixedPlan>(&plan)) return FixedSteps{.steps = fixed->steps};
  const AdaptivePlan& adaptive = std::get<AdaptivePlan>(plan);
  return ErrorControl{.rtol = adaptive.rtol, .atol = adaptive.atol, .max_steps = max_steps};
}

absl::StatusOr<BatchResult> SolveAlone(DeviceRuntime& runtime, BatchSpec spec, const StepPlan& plan,
                                       Segment segment, const std::function<bool()>& cancelled) {
  const auto* fixed = std::get_if<FixedPlan>(&plan);
  const bool hypersolved = fixed != nullptr && fixed->hypersolved;
  if (hypersolved != (spec.correction != nullptr)) {
    return absl::InvalidArgumentError(hypersolved ? "a hypersolved plan without a correction"
                                                  : "a correction for another plan");
  }
  SetPlan(plan, spec);
  segment.control = ControlOf(plan, MaxStepsOf(segment.control));
  if (spec.entry != Entry::kNoise) spec.dtype = segment.data.dtype;
  HS_ASSIGN_OR_RETURN(const DeviceRuntime::StartedRun started,
                      runtime.StartRun(spec, segment.rows));
  HS_RETURN_IF_ERROR(started.run->Admit(segment).status());
  HS_ASSIGN_OR_RETURN(std::vector<SolvedSegment> finished, SolveToEnd(*started.run, cancelled));
  return std::move(finished.front().rows);
}

}  // namespace hyperserve
