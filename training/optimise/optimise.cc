#include "training/optimise/optimise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "programs/progress.h"
#include "programs/stop.h"
#include "training/optimise/device_memory.h"
#include "training/optimise/fit_state.h"

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

// Within its life convolutions on a GPU round their operands to ten bits: about twice as fast, and
// the choice of a batch disturbs a step more.
class RoundedConvolutions {
 public:
  RoundedConvolutions() : before_(at::globalContext().allowTF32CuDNN()) {
    at::globalContext().setAllowTF32CuDNN(true);
  }
  ~RoundedConvolutions() { at::globalContext().setAllowTF32CuDNN(before_); }
  RoundedConvolutions(const RoundedConvolutions&) = delete;
  RoundedConvolutions& operator=(const RoundedConvolutions&) = delete;

 private:
  const bool before_;
};

at::Tensor CopyOnCpu(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

TensorMap CopiesOnCpu(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) copies[name] = CopyOnCpu(tensor);
  return copies;
}

std::vector<at::Tensor> FittedOf(const TensorMap& tensors) {
  std::vector<at::Tensor> fitted;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.requires_grad()) fitted.push_back(tensor);
  }
  return fitted;
}

// One call of Optimise.
class Loop {
 public:
  explicit Loop(const Optimisation& o)
      : o_(o),
        iterations_(o.optimiser.iterations()),
        fitted_(FittedOf(o.tensors)),
        adam_(fitted_, torch::optim::AdamWOptions(o.optimiser.rate())
                           .weight_decay(o.optimiser.weight_decay())),
        time_left_(o.time_left != nullptr ? *o.time_left : alone_),
        step_kind_(o.time_left != nullptr ? o.step_kind : alone_.Expect(iterations_, 1)),
        check_kind_(o.time_left != nullptr || !o.held_out
                        ? o.check_kind
                        : alone_.Expect((iterations_ - 1) / o.check_every + 2, 1)),
        time_(o.optimiser, o.clock),
        progress_(o.what, iterations_, "iterations", [this] { return time_left_.Seconds(); }) {}

  absl::StatusOr<Optimised> Run();

 private:
  torch::optim::AdamWParamState& MomentsOf(const at::Tensor& fitted);
  absl::Status Begin();
  absl::Status Iterate();
  absl::StatusOr<at::Tensor> Step(double rate);
  bool AllFinite() const;
  absl::Status StepBack();
  absl::Status Check();
  bool OnPlateau() const;
  void SayWhyItEnded();
  TensorMap Capture();
  void Restore(const TensorMap& state);
  absl::Status Stop();
  std::string Figures(double loss) const;

  const Optimisation& o_;
  const int iterations_;
  const std::vector<at::Tensor> fitted_;
  torch::optim::AdamW adam_;
  TimeLeft alone_;
  TimeLeft& time_left_;
  const size_t step_kind_, check_kind_;
  FitTime time_;
  Progress progress_;
  FitNumbers now_;
  TensorMap best_;
  std::vector<CurvePoint> curve_;
  TensorMap kept_;  // the last state that is finite
  bool out_of_time_ = false;
};

torch::optim::AdamWParamState& Loop::MomentsOf(const at::Tensor& fitted) {
  auto& moments = adam_.state()[fitted.unsafeGetTensorImpl()];
  if (moments == nullptr) {  // as AdamW begins
    auto zero = std::make_unique<torch::optim::AdamWParamState>();
    zero->step(0);
    zero->exp_avg(at::zeros_like(fitted, at::MemoryFormat::Preserve));
    zero->exp_avg_sq(at::zeros_like(fitted, at::MemoryFormat::Preserve));
    moments = std::move(zero);
  }
  return static_cast<torch::optim::AdamWParamState&>(*moments);
}

// The state as tensors of their own. The best ones are never written to, so they are shared.
TensorMap Loop::Capture() {
  TensorMap state;
  std::vector<int64_t> steps;
  for (const auto& [name, tensor] : o_.tensors) {
    if (!tensor.requires_grad()) continue;
    const auto& moments = MomentsOf(tensor);
    state[fit_state::kFitted + name] = CopyOnCpu(tensor);
    state[fit_state::kMean + name] = CopyOnCpu(moments.exp_avg());
    state[fit_state::kSquare + name] = CopyOnCpu(moments.exp_avg_sq());
    steps.push_back(moments.step());
  }
  for (const auto& [name, tensor] : best_) state[fit_state::kBest + name] = tensor;
  now_.seconds = time_.Seconds();
  state[fit_state::kSteps] = at::tensor(steps, at::kLong);
  state[fit_state::kNumbers] = TensorOf(now_);
  state[fit_state::kCurve] = TensorOf(curve_);
  o_.save(state);
  return state;
}

// Precondition: CheckState.
void Loop::Restore(const TensorMap& state) {
  const at::NoGradGuard no_grad;
  int64_t place = 0;
  for (const auto& [name, tensor] : o_.tensors) {
    if (!tensor.requires_grad()) continue;
    auto& moments = MomentsOf(tensor);
    tensor.copy_(state.at(fit_state::kFitted + name));
    moments.exp_avg().copy_(state.at(fit_state::kMean + name));
    moments.exp_avg_sq().copy_(state.at(fit_state::kSquare + name));
    moments.step(state.at(fit_state::kSteps)[place++].item<int64_t>());
  }
  for (auto& [name, tensor] : best_) tensor = state.at(fit_state::kBest + name);
  now_ = FitNumbersOf(state.at(fit_state::kNumbers));
  curve_ = PointsOf(state.at(fit_state::kCurve));
  o_.load(state);
}

// The start's held-out error, or the state of a checkpoint.
absl::Status Loop::Begin() {
  time_.Begin();
  time_left_.Limit(step_kind_, time_.SecondsLeft());
  if (o_.held_out) best_ = CopiesOnCpu(o_.tensors);
  kept_ = Capture();
  if (o_.checkpoints != nullptr) {
    HS_ASSIGN_OR_RETURN(auto state, o_.checkpoints->Load(o_.checkpoint));
    if (state.has_value()) {
      const FitNumbers most{.iterations = iterations_,
                            .steps_back = kStepsBackMost,
                            .best_iteration = iterations_,
                            .gain_iteration = iterations_,
                            .seconds = std::numeric_limits<double>::infinity()};
      HS_RETURN_IF_ERROR(CheckState(*state, kept_, most));
      Restore(*state);
      kept_ = *std::move(state);
      time_.Begin(now_.seconds);
      time_left_.Limit(step_kind_, time_.SecondsLeft());
      out_of_time_ = time_.Over();
      progress_.Say(absl::StrFormat("%s: goes on from iteration %d of %d", o_.what, now_.iterations,
                                    iterations_));
      time_left_.Skip(step_kind_, now_.iterations);
      if (o_.held_out) time_left_.Skip(check_kind_, now_.iterations / o_.check_every + 1);
      progress_.Advance(now_.iterations);
      return absl::OkStatus();
    }
  }
  if (o_.held_out) {
    curve_.push_back({});
    HS_RETURN_IF_ERROR(Check());
    kept_ = Capture();
  }
  return absl::OkStatus();
}

// The loss, of which a step was taken.
absl::StatusOr<at::Tensor> Loop::Step(double rate) {
  for (auto& group : adam_.param_groups()) group.options().set_lr(rate);
  adam_.zero_grad();
  at::Tensor loss;
  {
    const RoundedConvolutions rounded;
    HS_ASSIGN_OR_RETURN(loss, o_.loss(now_.iterations));
    loss.backward();
  }
  if (o_.optimiser.clip_norm() > 0) {
    torch::nn::utils::clip_grad_norm_(fitted_, o_.optimiser.clip_norm());
  }
  adam_.step();
  return loss;
}

bool Loop::AllFinite() const {
  const at::NoGradGuard no_grad;
  return std::all_of(fitted_.begin(), fitted_.end(), [](const at::Tensor& tensor) {
    return at::isfinite(tensor).all().item<bool>();
  });
}

absl::Status Loop::StepBack() {
  const std::string where =
      absl::StrFormat("numbers are not finite at iteration %d of %d", now_.iterations, iterations_);
  const int steps_back = now_.steps_back + 1;
  if (steps_back > kStepsBackMost) {
    return absl::InternalError(absl::StrFormat(
        "%s: %s, also after %d steps back, each to %g times the rate: give the recipe a smaller "
        "rate or a clip_norm",
        o_.what, where, kStepsBackMost, kRateAfterStepBack));
  }
  const int left = now_.iterations;
  Restore(kept_);
  progress_.Advance(now_.iterations - left);
  now_.steps_back = steps_back;
  kept_ = Capture();
  progress_.Say(absl::StrFormat(
      "%s: %s; back to iteration %d with %g times the rate (%d of %d)", o_.what, where,
      now_.iterations, std::pow(kRateAfterStepBack, steps_back), steps_back, kStepsBackMost));
  return absl::OkStatus();
}

// Measures the held-out error into the last point of the curve, and keeps the best tensors.
absl::Status Loop::Check() {
  HS_ASSIGN_OR_RETURN(const double error, time_left_.Timed(check_kind_, o_.held_out));
  curve_.back().error = error;
  if (error < now_.best_error) {
    now_.best_error = error;
    now_.best_iteration = now_.iterations;
    best_ = CopiesOnCpu(o_.tensors);
  }
  // A negative log-likelihood may be below zero, and the first error is compared with infinity.
  const double least_gain =
      std::isfinite(now_.gain_error) ? kPlateauGain * std::abs(now_.gain_error) : 0;
  if (error < now_.gain_error - least_gain) {
    now_.gain_error = error;
    now_.gain_iteration = now_.iterations;
  }
  return absl::OkStatus();
}

bool Loop::OnPlateau() const {
  const int patience = o_.optimiser.patience();
  if (!o_.held_out || patience == 0 || now_.iterations % o_.check_every != 0) return false;
  // Before the first check nothing tells whether the error falls.
  return now_.iterations > 0 && now_.iterations - now_.gain_iteration >= patience;
}

std::string Loop::Figures(double loss) const {
  std::string text = absl::StrFormat("loss %.4g", loss);
  if (o_.held_out) absl::StrAppendFormat(&text, "  best %s %.4g", o_.error_name, now_.best_error);
  const std::string memory =
      fitted_.empty() ? std::string() : DeviceMemoryText(fitted_.front().device());
  if (!memory.empty()) absl::StrAppend(&text, "  ", memory);
  return text;
}

absl::Status Loop::Iterate() {
  const Clock::time_point start = Clock::now();
  const double noted = time_left_.noted_seconds();
  const double rate = LearningRate(o_.optimiser, time_.PlaceInSchedule(now_.iterations)) *
                      std::pow(kRateAfterStepBack, now_.steps_back);
  HS_ASSIGN_OR_RETURN(const at::Tensor loss, Step(rate));
  HS_RETURN_IF_ERROR(o_.after(now_.iterations));
  const int done = ++now_.iterations;
  out_of_time_ = time_.Over();
  const bool last = done == iterations_ || out_of_time_;
  const bool keep = done == 1 || last || done % kKeepEvery == 0;
  const bool check = o_.held_out && (last || done % o_.check_every == 0);
  if (keep || check) {  // seldom, since reading the loss waits for a GPU
    const double number = loss.item<double>();
    if (done == 1 && !std::isfinite(number)) {
      return absl::InternalError(absl::StrCat(
          o_.what,
          ": the loss is not finite before the first step, so no rate would help: look at "
          "the data and the start"));
    }
    if (!std::isfinite(number) || !AllFinite()) return StepBack();
    curve_.push_back({.iterations = done, .rate = rate, .loss = number});
  }
  if (check) HS_RETURN_IF_ERROR(Check());
  if (keep) {
    kept_ = Capture();
    if (o_.checkpoints != nullptr && o_.checkpoints->Due()) {
      o_.checkpoints->Save(o_.checkpoint, kept_);
    }
  }
  const double all = std::chrono::duration<double>(Clock::now() - start).count();
  time_left_.Note(step_kind_, all - (time_left_.noted_seconds() - noted));
  progress_.Advance(1, [&] { return Figures(loss.item<double>()); });
  return absl::OkStatus();
}

absl::Status Loop::Stop() {
  if (o_.checkpoints == nullptr || !o_.checkpoints->Worth()) return Stopped();
  if (!o_.checkpoints->Save(o_.checkpoint, kept_)) {
    return absl::CancelledError(
        "stopped; the last checkpoint could not be written: --resume goes on from the one before, "
        "if "
        "there is one");
  }
  return absl::CancelledError(
      absl::StrFormat("stopped; nothing was written but a checkpoint: --resume goes on from "
                      "iteration %d of %d",
                      FitNumbersOf(kept_.at(fit_state::kNumbers)).iterations, iterations_));
}

// Of a fit that ends before its last iteration.
void Loop::SayWhyItEnded() {
  const std::string why =
      out_of_time_ ? absl::StrFormat("it took the %g seconds that it may", o_.optimiser.seconds())
                   : absl::StrFormat("since iteration %d the held-out error is not less by %g %%",
                                     now_.gain_iteration, 100 * kPlateauGain);
  progress_.Say(absl::StrFormat("%s: stopped at iteration %d of %d: %s", o_.what, now_.iterations,
                                iterations_, why));
  time_left_.Skip(step_kind_, iterations_ - now_.iterations);
  if (o_.held_out) {
    time_left_.Skip(check_kind_, (iterations_ - now_.iterations) / o_.check_every);
  }
}

absl::StatusOr<Optimised> Loop::Run() {
  HS_RETURN_IF_ERROR(Begin());
  while (now_.iterations < iterations_ && !out_of_time_ && !OnPlateau()) {
    const absl::Status status = StopRequested() ? Stopped() : Iterate();
    if (absl::IsCancelled(status) && StopRequested()) return Stop();
    HS_RETURN_IF_ERROR(status);
  }
  std::string ending;
  if (now_.iterations < iterations_) {
    SayWhyItEnded();
    ending = out_of_time_ ? absl::StrFormat("stopped after %g seconds", o_.optimiser.seconds())
                          : std::string("stopped at a plateau");
  }
  if (o_.checkpoints != nullptr && o_.checkpoints->Worth()) {
    o_.checkpoints->Save(o_.checkpoint, Capture());
  }
  if (!o_.held_out) best_ = CopiesOnCpu(o_.tensors);
  return Optimised{.tensors = best_,
                   .start_error = o_.held_out ? curve_.front().error : kNotMeasured,
                   .error = o_.held_out ? now_.best_error : kNotMeasured,
                   .best_iteration = o_.held_out ? now_.best_iteration : now_.iterations,
                   .iterations = now_.iterations,
                   .planned = iterations_,
                   .ending = ending,
                   .steps_back = now_.steps_back,
                   .curve = curve_};
}

}  // namespace

std::string Optimised::Remark() const {
  std::vector<std::string> remarks;
  if (iterations < planned) {
    remarks.push_back(absl::StrFormat("%s, iteration %d of %d", ending, iterations, planned));
  }
  if (steps_back > 0) {
    remarks.push_back(
        absl::StrFormat("stepped back %d times from numbers that were not finite", steps_back));
  }
  return absl::StrJoin(remarks, "; ");
}

absl::StatusOr<Optimised> Optimise(const Optimisation& o) { return Loop(o).Run(); }

}  // namespace hyperserve
