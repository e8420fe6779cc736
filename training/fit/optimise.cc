#include "training/fit/optimise.h"

#include <torch/torch.h>

#include <cmath>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "training/fit/schedule.h"

namespace hyperserve {
namespace {

constexpr int kFiniteCheckEvery = 50;  // iterations

absl::Status CheckFinite(const at::Tensor& loss, int iteration) {
  if (std::isfinite(loss.item<double>())) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the loss is not finite at iteration ", iteration));
}

}  // namespace

absl::Status Optimise(const Optimisation& o, Progress& progress) {
  const int iterations = o.optimiser.iterations();
  const Schedule schedule{.peak = o.optimiser.rate(),
                          .last = o.optimiser.final_rate(),
                          .iterations = iterations,
                          .warm_up = o.optimiser.warm_up()};
  torch::optim::AdamW adam(
      o.parameters,
      torch::optim::AdamWOptions(o.optimiser.rate()).weight_decay(o.optimiser.weight_decay()));
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (StopRequested()) return Stopped();
    for (auto& group : adam.param_groups()) group.options().set_lr(schedule.RateAt(iteration));
    adam.zero_grad();
    HS_ASSIGN_OR_RETURN(const at::Tensor loss, o.loss(iteration));
    loss.backward();
    if (o.optimiser.clip_norm() > 0) {
      torch::nn::utils::clip_grad_norm_(o.parameters, o.optimiser.clip_norm());
    }
    adam.step();
    const bool last = iteration + 1 == iterations;
    if (last || iteration % kFiniteCheckEvery == 0) {
      HS_RETURN_IF_ERROR(CheckFinite(loss, iteration));
    }
    HS_RETURN_IF_ERROR(o.after(iteration));
    progress.Update(iteration + 1, [&] {
      return absl::StrFormat("loss %.4g%s", loss.item<double>(), o.figures());
    });
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
