#include "server/warm_up.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/engine/warm_sizes.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

BatchSpec SpecOf(const WarmUpSubject& subject, const Plan& plan) {
  const ModelSpec& model = subject.model->spec();
  const bool flow = model.kind == ModelKind::kFlow;
  BatchSpec spec{.model = subject.model,
                 .tier = plan.tier,
                 .entry = flow ? Entry::kNoise : Entry::kInput,
                 .direction = flow ? Direction::kNoiseToData : Direction::kForward,
                 .save_at = model.save_at,
                 .want_outputs = HasOutputs(model.kind)};
  if (plan.adaptive() != nullptr) SetPlan(*plan.adaptive(), spec);
  if (plan.fixed() != nullptr) SetPlan(*plan.fixed(), spec);
  if (plan.hypersolved()) {
    spec.correction = subject.correction;
    spec.direction = subject.correction->spec().direction;
  }
  return spec;
}

std::vector<Plan> PlansOf(const WarmUpSubject& subject) {
  std::vector<Plan> plans;
  for (const PlanCalibration& measured : subject.calibration->plans) plans.push_back(measured.plan);
  if (subject.correction == nullptr) {
    const Plan plan = DefaultPlanOf(*subject.calibration);
    const bool automatic = std::holds_alternative<AutoPlan>(plan.choice);
    plans.push_back(automatic ? Plan{.choice = kFallbackPlan} : plan);
  } else {
    plans.push_back(
        {.choice = FixedPlan{
             .method = subject.correction->spec().method, .steps = 1, .hypersolved = true}});
  }
  // A model's calibration may list hypersolved plans; they are warmed with their own generation.
  std::erase_if(
      plans, [&](const Plan& plan) { return plan.hypersolved() && subject.correction == nullptr; });
  return plans;
}

constexpr int kTimedSteps = 2;  // of a plan of more steps
constexpr size_t kTimedRuns = 3;
constexpr double kTimedSeconds = 0.004;  // after which no further run begins
// Error control makes them to choose the first step.
constexpr int kFirstStepEvaluations = 2;

// One step is enough, since a solve repeats it; of a learned solver its longest table.
StepControl OneStep(const BatchSpec& spec) {
  if (spec.method.method == Method::kLearned) {
    return FixedSteps{.steps = spec.correction->spec().steps.back()};
  }
  if (spec.grid.kind == StepGrid::Kind::kListed) {
    return FixedSteps{.steps = std::ssize(spec.grid.shares) - 1};
  }
  if (spec.stepping == Stepping::kFixed) return FixedSteps{.steps = 1};
  return ErrorControl{.rtol = 1e-3, .atol = 1e-3, .max_steps = 1};
}

BatchBound BoundOf(const WarmUpSubject& subject, int64_t batch_rows_max) {
  return {.rows_max = batch_rows_max, .field_macs = subject.model->field_macs()};
}

// Of a learned solver all its tables, else those of the calibrated plans; falling, so that shorter
// solves find the memory of longer ones.
std::vector<StepControl> TablesOf(const WarmUpSubject& subject, const BatchSpec& spec) {
  std::vector<int> steps;
  if (spec.method.method == Method::kLearned) steps = spec.correction->spec().steps;
  for (const PlanCalibration& measured : subject.calibration->plans) {
    const FixedPlan* fixed = measured.plan.fixed();
    const bool of_spec = fixed != nullptr && fixed->method == spec.method &&
                         measured.plan.tier == spec.tier && spec.correction == nullptr;
    if (of_spec) steps.push_back(fixed->steps);
  }
  if (steps.empty()) steps.push_back(1);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  std::vector<StepControl> controls;
  for (const int one : steps) controls.push_back(FixedSteps{.steps = one});
  return controls;
}

// The warm-up of one subject on one device.
struct Warmer {
  const WarmUpSubject& subject;
  const BatchBound bound;
  const std::function<bool()>& interrupted;
  DeviceRuntime& runtime;

  absl::Status Warm(const BatchSpec& spec, std::string_view engine) const {
    for (const int64_t rows : WarmRows(runtime.device(), engine, bound)) {
      const bool tables = RunsFromTable(spec.method.method) &&
                          IsCaptured(runtime.device(), engine, rows, bound.field_macs);
      const std::vector<StepControl> controls =
          tables ? TablesOf(subject, spec) : std::vector<StepControl>{OneStep(spec)};
      for (const StepControl& control : controls) {
        const absl::Status warm = runtime.WarmUp(spec, control, rows, interrupted);
        if (rows > 1 && absl::IsResourceExhausted(warm)) break;  // batches will be halved
        HS_RETURN_IF_ERROR(Annotate(warm, "warm-up"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WarmFast(const BatchSpec& spec) const {
    BatchSpec fast = spec;
    fast.tier = Tier::kFast;
    if (fast == spec) return absl::OkStatus();
    const absl::Status there = ChooseEngine(fast, 1, runtime.engines()).status();
    if (absl::IsUnimplemented(there)) return absl::OkStatus();
    HS_RETURN_IF_ERROR(Annotate(there, "warm-up of tier fast"));
    return Annotate(runtime.WarmUp(fast, OneStep(fast), 1, interrupted), "warm-up of tier fast");
  }

  // Images come as bytes too, which other operations preprocess.
  absl::Status WarmBytes(BatchSpec spec) const {
    spec.dtype = Dtype::kU8;
    return Annotate(runtime.WarmUp(spec, OneStep(spec), 1, interrupted), "warm-up of bytes");
  }
};

// The warm-up of all specs of a subject, by the caller's thread and perhaps one more. Only the
// caller's asks whether it is interrupted; meanwhile the other makes no further evaluation of f.
class SpecsInTurn {
 public:
  SpecsInTurn(const WarmUpSubject& subject, int64_t batch_rows_max,
              const std::function<bool()>& interrupted, DeviceRuntime& runtime)
      : subject_(subject),
        bound_(BoundOf(subject, batch_rows_max)),
        interrupted_(interrupted),
        runtime_(runtime),
        specs_(WarmUpSpecs(subject)) {}

  absl::Status WarmAlone() {
    return WarmRest([this] { return Asked(); });
  }

  absl::Status WarmByTwo() {
    absl::Status of_other;
    std::atomic<bool> other_ended{false};
    std::thread other([&] {
      of_other = WarmRest([this] {
        const std::lock_guard lock(asking_);
        return stop_.load();
      });
      other_ended = true;
    });
    const absl::Status own = WarmAlone();
    while (!other_ended && !Asked()) std::this_thread::sleep_for(kAskEvery);
    other.join();
    // Where one fails, the other is cancelled.
    return own.ok() || (absl::IsCancelled(own) && !of_other.ok()) ? of_other : own;
  }

 private:
  static constexpr std::chrono::milliseconds kAskEvery{1};

  bool Asked() {
    const std::lock_guard lock(asking_);
    if (interrupted_()) stop_ = true;
    return stop_;
  }

  // The specs that nobody has begun yet, one after the other.
  absl::Status WarmRest(const std::function<bool()>& stopped) {
    const Warmer warmer{subject_, bound_, stopped, runtime_};
    for (size_t i = next_++; i < specs_.size(); i = next_++) {
      const absl::Status warm = WarmOne(warmer, specs_[i]);
      if (!warm.ok()) stop_ = true;
      HS_RETURN_IF_ERROR(warm);
    }
    return absl::OkStatus();
  }

  absl::Status WarmOne(const Warmer& warmer, const BatchSpec& spec) {
    const absl::StatusOr<EngineChoice> choice = ChooseEngine(spec, 1, runtime_.engines());
    // A calibration may list plans of tier fast that were measured on a GPU.
    if (spec.tier == Tier::kFast && absl::IsUnimplemented(choice.status())) return absl::OkStatus();
    HS_RETURN_IF_ERROR(warmer.Warm(spec, choice.ok() ? choice->engine : ""));
    HS_RETURN_IF_ERROR(warmer.WarmFast(spec));
    if (spec.entry != Entry::kInput || bytes_are_warm_.exchange(true)) return absl::OkStatus();
    return warmer.WarmBytes(spec);
  }

  const WarmUpSubject& subject_;
  const BatchBound bound_;
  const std::function<bool()>& interrupted_;
  DeviceRuntime& runtime_;
  const std::vector<BatchSpec> specs_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> bytes_are_warm_{false};
  std::mutex asking_;              // held while interrupted_ is asked
  std::atomic<bool> stop_{false};  // it said yes, or a spec failed
};

// A part of a plan's solve, and how often the whole solve repeats it.
struct TimedPart {
  StepControl control;
  double repeats = 1;
};

TimedPart PartOf(const PlanCalibration& measured, const BatchSpec& spec) {
  const FixedPlan* fixed = measured.plan.fixed();
  if (fixed == nullptr) {
    const int evaluations = StepEvaluations(spec.method) + kFirstStepEvaluations;
    return {.control = OneStep(spec), .repeats = std::max(1.0, measured.nfe / evaluations)};
  }
  const bool whole = RunsFromTable(spec.method.method) || !spec.grid.uniform();
  if (whole) return {.control = FixedSteps{.steps = fixed->steps}};
  const int steps = std::min(fixed->steps, kTimedSteps);
  return {.control = FixedSteps{.steps = steps},
          .repeats = static_cast<double>(fixed->steps) / steps};
}

// Times runs on a device; of equal runs one.
class RunTimes {
 public:
  RunTimes(const std::function<bool()>& interrupted, DeviceRuntime& runtime, const Clock& clock)
      : interrupted_(interrupted), runtime_(runtime), clock_(clock) {}

  absl::StatusOr<double> Median(const BatchSpec& spec, const StepControl& control, int64_t rows) {
    for (const Timed& one : timed_) {
      if (one.rows == rows && one.control == control && one.spec == spec) return one.seconds;
    }
    std::vector<double> runs;
    double all = 0;
    while (runs.empty() || (runs.size() < kTimedRuns && all < kTimedSeconds)) {
      const Clock::TimePoint begun = clock_.Now();
      HS_RETURN_IF_ERROR(runtime_.WarmUp(spec, control, rows, interrupted_));
      all += runs.emplace_back(std::chrono::duration<double>(clock_.Now() - begun).count());
    }
    std::sort(runs.begin(), runs.end());
    return timed_.emplace_back(Timed{spec, control, rows, runs[runs.size() / 2]}).seconds;
  }

 private:
  struct Timed {
    BatchSpec spec;
    StepControl control;
    int64_t rows = 0;
    double seconds = 0;
  };
  const std::function<bool()>& interrupted_;
  DeviceRuntime& runtime_;
  const Clock& clock_;
  std::vector<Timed> timed_;
};

}  // namespace

std::vector<BatchSpec> WarmUpSpecs(const WarmUpSubject& subject) {
  std::vector<BatchSpec> specs;
  for (const Plan& plan : PlansOf(subject)) {
    BatchSpec spec = SpecOf(subject, plan);
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

absl::Status WarmUp(const WarmUpSubject& subject, int64_t batch_rows_max,
                    const std::function<bool()>& interrupted, DeviceRuntime& runtime,
                    WarmUpThreads threads) {
  SpecsInTurn specs(subject, batch_rows_max, interrupted, runtime);
  return threads == WarmUpThreads::kTwo ? specs.WarmByTwo() : specs.WarmAlone();
}

absl::Status WarmSolvers(const WarmUpSubject& subject, int64_t batch_rows_max,
                         const std::function<bool()>& interrupted, const DeviceRuntime& runtime,
                         const OnSolvers& on_solvers) {
  if (subject.model->state_shape().size() != 3) return absl::OkStatus();
  std::set<Tier> seen = {Tier::kFast};  // its kernels need no plans
  for (const BatchSpec& spec : WarmUpSpecs(subject)) {
    if (!seen.insert(spec.tier).second) continue;  // the nets are the same
    for (const int64_t rows : PlannedRows(runtime.device(), BoundOf(subject, batch_rows_max))) {
      if (interrupted()) return absl::CancelledError("the warm-up was cancelled");
      absl::Status warm;
      on_solvers([&](DeviceRuntime& own) { warm.Update(own.WarmThread(spec, rows)); });
      if (absl::IsResourceExhausted(warm)) break;  // batches will be halved
      HS_RETURN_IF_ERROR(Annotate(warm, "warm-up of the solvers"));
    }
  }
  return absl::OkStatus();
}

absl::Status TimePlans(const WarmUpSubject& subject, int64_t batch_rows_max,
                       const std::function<bool()>& interrupted, DeviceRuntime& runtime,
                       const Clock& clock) {
  const std::vector<int64_t> sizes = TimedRows(runtime.device(), BoundOf(subject, batch_rows_max));
  RunTimes times(interrupted, runtime, clock);
  for (PlanCalibration& measured : subject.calibration->plans) {
    measured.times.clear();
    if (measured.plan.hypersolved() && subject.correction == nullptr) continue;
    const BatchSpec spec = SpecOf(subject, measured.plan);
    if (!ChooseEngine(spec, 1, runtime.engines()).ok()) continue;
    const TimedPart part = PartOf(measured, spec);
    for (const int64_t rows : sizes) {
      const auto seconds = times.Median(spec, part.control, rows);
      if (rows > 1 && absl::IsResourceExhausted(seconds.status())) break;
      if (!seconds.ok()) return Annotate(seconds.status(), "timing");
      measured.times.push_back(
          {.rows = static_cast<int>(rows), .seconds = part.repeats * *seconds});
    }
  }
  return absl::OkStatus();
}

absl::Status WarmAndTime(const WarmUpSubject& subject, const BatchLimits& limits,
                         const std::function<bool()>& interrupted,
                         std::span<const std::unique_ptr<DeviceRuntime>> runtimes,
                         const OnSolvers& on_solvers, const Clock& clock) {
  const auto field = static_cast<double>(std::max<int64_t>(subject.model->field_macs(), 1));
  const auto rows = static_cast<int64_t>(
      std::clamp(limits.macs_max / field, 1.0, static_cast<double>(limits.rows_max)));
  for (const auto& runtime : runtimes) {
    const bool captures = runtime->device() != "cpu";
    HS_RETURN_IF_ERROR(WarmUp(subject, rows, interrupted, *runtime,
                              captures ? WarmUpThreads::kTwo : WarmUpThreads::kOne));
  }
  HS_RETURN_IF_ERROR(WarmSolvers(subject, rows, interrupted, *runtimes.front(), on_solvers));
  return TimePlans(subject, rows, interrupted, *runtimes.front(), clock);
}

}  // namespace hyperserve
