#include "training/fit/optimise.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "programs/progress.h"
#include "programs/stop.h"
#include "programs/time_left.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFiniteCheckEvery = 50;  // iterations

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

// The loss, whose gradient the parameters have then.
absl::StatusOr<at::Tensor> LossAndGradient(const Optimisation& o, int iteration) {
  const RoundedConvolutions rounded;
  HS_ASSIGN_OR_RETURN(at::Tensor loss, o.loss(iteration));
  loss.backward();
  return loss;
}

absl::Status CheckFinite(const at::Tensor& loss, int iteration) {
  if (std::isfinite(loss.item<double>())) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the loss is not finite at iteration ", iteration));
}

}  // namespace

double LearningRate(const training::Optimiser& optimiser, int iteration) {
  const double peak = optimiser.rate(), last = optimiser.final_rate();
  const int warm_up = optimiser.warm_up();
  if (iteration < warm_up) return peak * (iteration + 1) / (warm_up + 1);
  const int falling = std::max(1, optimiser.iterations() - 1 - warm_up);
  const double progress = std::min(1.0, static_cast<double>(iteration - warm_up) / falling);
  return last + 0.5 * (peak - last) * (1.0 + std::cos(std::numbers::pi * progress));
}

absl::Status Optimise(const Optimisation& o) {
  const int iterations = o.optimiser.iterations();
  TimeLeft alone;
  TimeLeft& time_left = o.time_left != nullptr ? *o.time_left : alone;
  const size_t step_kind = o.time_left != nullptr ? o.step_kind : alone.Expect(iterations, 1);
  Progress progress(o.what, iterations, "iterations", [&] { return time_left.Seconds(); });
  torch::optim::AdamW adam(
      o.parameters,
      torch::optim::AdamWOptions(o.optimiser.rate()).weight_decay(o.optimiser.weight_decay()));
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (StopRequested()) return Stopped();
    const Clock::time_point start = Clock::now();
    const double noted = time_left.noted_seconds();
    const double rate = LearningRate(o.optimiser, iteration);
    for (auto& group : adam.param_groups()) group.options().set_lr(rate);
    adam.zero_grad();
    HS_ASSIGN_OR_RETURN(const at::Tensor loss, LossAndGradient(o, iteration));
    if (o.optimiser.clip_norm() > 0) {
      torch::nn::utils::clip_grad_norm_(o.parameters, o.optimiser.clip_norm());
    }
    adam.step();
    const bool last = iteration + 1 == iterations;
    if (last || iteration % kFiniteCheckEvery == 0) {
      HS_RETURN_IF_ERROR(CheckFinite(loss, iteration));
    }
    HS_RETURN_IF_ERROR(o.after(iteration));
    const double all = std::chrono::duration<double>(Clock::now() - start).count();
    time_left.Note(step_kind, all - (time_left.noted_seconds() - noted));
    progress.Advance(
        1, [&] { return absl::StrFormat("loss %.4g%s", loss.item<double>(), o.figures()); });
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
