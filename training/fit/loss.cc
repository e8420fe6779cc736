#include "training/fit/loss.h"

#include <cmath>
#include <numbers>

namespace hyperserve {
namespace {

constexpr double kSizeMin = 1e-12;  // the smallest divisor

at::Tensor MeanOf(const std::vector<at::Tensor>& terms) { return at::stack(terms).mean(); }

}  // namespace

at::Tensor MeanRowNorm(const at::Tensor& x) {
  // The square root has no derivative at zero; that of a norm this small does not matter.
  return x.flatten(1).square().sum(1).clamp_min(kSizeMin * kSizeMin).sqrt().mean();
}

at::Tensor RelativeLoss(const at::Tensor& guess, const at::Tensor& truth, const at::Tensor& size) {
  return MeanRowNorm(truth - guess) / size.clamp_min(kSizeMin);
}

at::Tensor SpeedPenalty(const std::vector<at::Tensor>& slopes) {
  std::vector<at::Tensor> means;
  for (const at::Tensor& slope : slopes) means.push_back(slope.square().mean());
  return MeanOf(means);
}

at::Tensor BendPenalty(const std::vector<LaterStage>& stages) {
  std::vector<at::Tensor> means;
  for (const LaterStage& stage : stages) {
    means.push_back(((stage.slope - stage.first) / stage.offset).square().mean());
  }
  return MeanOf(means);
}

at::Tensor NegativeLogLikelihood(const at::Tensor& z1, const at::Tensor& trace) {
  const double log_norm = 0.5 * static_cast<double>(z1.size(1)) * std::log(2 * std::numbers::pi);
  return (0.5 * z1.square().sum(1) + log_norm - trace).mean();
}

}  // namespace hyperserve
